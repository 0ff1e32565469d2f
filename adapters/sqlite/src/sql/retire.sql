UPDATE tag SET grant_start = watermark + 1, watermark = 9223372036854775807, settled = 9223372036854775807,
    version = version + CASE WHEN ?2 IS NULL THEN 1 ELSE 2 END
WHERE tag = ?1 AND watermark < 9223372036854775807 AND (SELECT stripe_set FROM store) IS ?2
RETURNING tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms,
    refill_policy, refill, generation, grant_start, settled, watermark, version
