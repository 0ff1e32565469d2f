UPDATE lease SET valid_until_ms = ?4, released = 1
WHERE namespace = ?1 AND worker = ?2 AND grant_id = ?3 AND released = 0 AND valid_until_ms = ?5
RETURNING worker
