SELECT worker, valid_until_ms FROM unalike_lease
WHERE namespace = $1 AND holder = $2 AND valid_until_ms <= $3 ORDER BY valid_until_ms DESC LIMIT 1
