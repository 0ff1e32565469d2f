INSERT INTO tag (tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms,
    refill_policy, refill, grant_start, settled, watermark)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?2, ?2 - 1 + above, ?2 - 1 + above
FROM store, (SELECT min(coalesce((SELECT watermark FROM tag WHERE tag = ?14), 0), 9223372036854775807 - (?2 - 1)) AS above)
WHERE (tags < ?12 OR instr(?1, char(31)) > 0) AND stripe_set IS ?13
    AND NOT EXISTS (SELECT 1 FROM tag WHERE tag = ?15 AND watermark = 9223372036854775807)
    AND (?14 IS NOT NULL OR NOT EXISTS (SELECT 1 FROM tag WHERE tag = 'unalike-new-names' || char(31) || 'leases'
        AND watermark > CAST(strftime('%s', 'now') AS INTEGER) * 1000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)))
    AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger'
        AND name NOT IN ('tag_created', 'tag_deleted', 'tag_granted')
        AND lower(tbl_name) IN ('tag', 'store', 'namespace', 'lease'))
ON CONFLICT (tag) DO NOTHING
RETURNING tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms,
    refill_policy, refill, generation, grant_start, settled, watermark, version
