INSERT INTO lease (namespace, worker, grant_id, holder, not_before_ms, valid_until_ms, acquired_ms, released)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, 0
WHERE NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger'
        AND name NOT IN ('tag_created', 'tag_deleted', 'tag_granted')
        AND lower(tbl_name) IN ('tag', 'store', 'namespace', 'lease'))
    AND ?5 >= coalesce((SELECT watermark FROM tag WHERE tag = 'unalike-new-names' || char(31) || 'leases'), 0)
ON CONFLICT (namespace, worker) DO UPDATE SET
    grant_id = excluded.grant_id, holder = excluded.holder, not_before_ms = excluded.not_before_ms,
    valid_until_ms = excluded.valid_until_ms, acquired_ms = excluded.acquired_ms, released = 0
    WHERE lease.valid_until_ms <= excluded.not_before_ms
RETURNING worker
