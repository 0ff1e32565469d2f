UPDATE unalike_tag SET watermark = 9223372036854775807, settled = 9223372036854775807, version = version + 1
WHERE tag = $2 AND mark = $3 AND {fence}
