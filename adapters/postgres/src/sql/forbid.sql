UPDATE unalike_lease SET is_final = true WHERE namespace = $2 AND worker = $3 AND {fence} RETURNING *
