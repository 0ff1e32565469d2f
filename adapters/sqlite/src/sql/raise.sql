UPDATE tag SET watermark = max(watermark, ?2 - 1), settled = max(settled, ?2 - 1), version = version + 1
WHERE tag = ?1 AND (SELECT stripe_set FROM store) IS ?3
RETURNING *
