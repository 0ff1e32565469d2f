UPDATE tag SET
    grant_start = max(watermark + 1, ?2),
    settled = CASE WHEN ?2 = watermark + 1 THEN settled ELSE max(watermark + 1, ?2) - 1 END,
    watermark = max(watermark + 1, ?2) + min(?3 - 1, 9223372036854775807 - max(watermark + 1, ?2)),
    version = version + CASE WHEN ?4 IS NULL THEN 1 ELSE 2 END
WHERE tag = ?1 AND watermark < 9223372036854775807 AND (SELECT stripe_set FROM store) IS ?4
    AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger'
        AND name NOT IN ('tag_created', 'tag_deleted', 'tag_granted')
        AND lower(tbl_name) IN ('tag', 'store', 'namespace', 'lease'))
RETURNING generation, grant_start, watermark, version
