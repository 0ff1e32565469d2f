UPDATE tag SET watermark = ?2 - 1, settled = ?2 - 1, version = version + 1
WHERE tag = ?1 AND version = ?3 AND settled < ?2 AND ?2 <= watermark AND (SELECT stripe_set FROM store) IS ?4
RETURNING version
