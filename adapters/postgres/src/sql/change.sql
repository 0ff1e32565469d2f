UPDATE unalike_tag SET step_policy = $3, step = $4, step_min = $5, step_max = $6, grow_below_ms = $7,
    shrink_above_ms = $8, refill_policy = $9, refill = $10
WHERE tag = $2 AND {fence}
RETURNING *
