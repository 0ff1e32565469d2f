UPDATE unalike_tag SET
    grant_start = GREATEST(watermark + 1, $3),
    settled = CASE WHEN $3 = watermark + 1 THEN settled ELSE GREATEST(watermark + 1, $3) - 1 END,
    watermark = GREATEST(watermark + 1, $3) + LEAST($4 - 1, 9223372036854775807 - GREATEST(watermark + 1, $3)),
    version = version + 1
WHERE tag = $2 AND watermark < 9223372036854775807 AND mark = $5 AND {fence}
RETURNING grant_start, watermark, version, (pg_current_wal_insert_lsn() - '0/0')::bigint AS log_position
