UPDATE tag SET step_policy = ?2, step = ?3, step_min = ?4, step_max = ?5, grow_below_ms = ?6, shrink_above_ms = ?7,
    refill_policy = ?8, refill = ?9
WHERE tag = ?1
RETURNING tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms,
    refill_policy, refill, generation, grant_start, settled, watermark, version
