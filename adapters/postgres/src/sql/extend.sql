UPDATE unalike_lease l SET valid_until_ms = GREATEST(l.valid_until_ms, $5)
FROM unalike_store s
WHERE l.namespace = $2 AND l.worker = $3 AND l.grant_id = $4 AND NOT l.is_final
    AND s.part = $6 AND s.server = $7 AND {fence}
RETURNING l.valid_until_ms, (pg_current_wal_insert_lsn() - '0/0')::bigint AS log_position
