UPDATE unalike_tag SET watermark = $3 - 1, settled = $3 - 1, version = version + 1
WHERE tag = $2 AND version = $4 AND settled < $3 AND $3 <= watermark AND mark = $5 AND {fence}
RETURNING version
