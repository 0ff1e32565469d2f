INSERT INTO unalike_lease (namespace, worker, grant_id, holder, not_before_ms, valid_until_ms, acquired_ms, is_final)
SELECT $2, $3, $4, $5, $6, $7, $8, false FROM unalike_store s
WHERE s.part = $9 AND s.server = $10 AND {fence}
ON CONFLICT (namespace, worker) DO UPDATE SET
    grant_id = excluded.grant_id, holder = excluded.holder, not_before_ms = excluded.not_before_ms,
    valid_until_ms = excluded.valid_until_ms, acquired_ms = excluded.acquired_ms, is_final = false
    WHERE unalike_lease.valid_until_ms <= excluded.not_before_ms
RETURNING worker, (pg_current_wal_insert_lsn() - '0/0')::bigint AS log_position
