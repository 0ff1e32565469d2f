UPDATE tag SET watermark = max(watermark, ?2 - 1), settled = max(settled, ?2 - 1), version = version + 1
WHERE tag = ?1 AND (SELECT stripe_set FROM store) IS ?3
RETURNING tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms,
    refill_policy, refill, generation, grant_start, settled, watermark, version
