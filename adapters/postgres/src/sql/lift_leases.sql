UPDATE unalike_tag SET
    settled = GREATEST(watermark, $1 + now.ms), watermark = GREATEST(watermark, $1 + now.ms),
    version = version + 1, mark = $2
FROM (SELECT floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint AS ms) AS now
WHERE tag LIKE $3
