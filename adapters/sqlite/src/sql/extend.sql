UPDATE lease SET valid_until_ms = max(valid_until_ms, ?4)
WHERE namespace = ?1 AND worker = ?2 AND grant_id = ?3 AND released = 0
    AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger'
        AND name NOT IN ('tag_created', 'tag_deleted', 'tag_granted')
        AND lower(tbl_name) IN ('tag', 'store', 'namespace', 'lease'))
RETURNING namespace, worker, grant_id, holder, not_before_ms, valid_until_ms, acquired_ms, released
