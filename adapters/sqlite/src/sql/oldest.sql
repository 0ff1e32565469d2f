SELECT worker, valid_until_ms FROM lease WHERE namespace = ?1 ORDER BY valid_until_ms LIMIT 1
