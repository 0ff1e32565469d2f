UPDATE lease SET released = 1 WHERE namespace = ?1 AND worker = ?2 RETURNING *
