UPDATE unalike_tag SET watermark = GREATEST(watermark, $3 - 1), settled = GREATEST(settled, $3 - 1), version = version + 1
WHERE tag = $2 AND mark = $4 AND {fence}
RETURNING *
