UPDATE unalike_lease SET valid_until_ms = $5, is_final = true
WHERE namespace = $2 AND worker = $3 AND grant_id = $4 AND NOT is_final AND valid_until_ms >= $5 AND {fence}
RETURNING worker
