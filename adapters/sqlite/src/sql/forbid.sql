UPDATE lease SET released = 1 WHERE namespace = ?1 AND worker = ?2
RETURNING namespace, worker, grant_id, holder, not_before_ms, valid_until_ms, acquired_ms, released
