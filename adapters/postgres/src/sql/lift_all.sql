UPDATE unalike_tag SET
    settled = watermark + LEAST($1, 9223372036854775807 - watermark),
    watermark = watermark + LEAST($1, 9223372036854775807 - watermark),
    version = version + 1, mark = $2
WHERE NOT (tag LIKE $3 OR tag = $4 OR tag LIKE $5 OR tag LIKE $6)
