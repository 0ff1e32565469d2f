INSERT INTO unalike_tag (tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms,
    refill_policy, refill, grant_start, settled, watermark, mark)
SELECT $2, $11, $12, $3, $4, $5, $6, $7, $8, $9, $10, $11, $13, $13, $14 WHERE {fence}
ON CONFLICT (tag) DO NOTHING
RETURNING *
