UPDATE lease SET valid_until_ms = max(valid_until_ms, ?4)
WHERE namespace = ?1 AND worker = ?2 AND grant_id = ?3 AND released = 0
RETURNING *
