UPDATE tag SET
    grant_start = max(watermark + 1, ?2),
    settled = CASE WHEN ?2 = watermark + 1 THEN settled ELSE max(watermark + 1, ?2) - 1 END,
    watermark = max(watermark + 1, ?2) + min(?3 - 1, 9223372036854775807 - max(watermark + 1, ?2)),
    version = version + CASE WHEN ?4 IS NULL THEN 1 ELSE 2 END
WHERE tag = ?1 AND watermark < 9223372036854775807 AND (SELECT stripe_set FROM store) IS ?4
RETURNING *
