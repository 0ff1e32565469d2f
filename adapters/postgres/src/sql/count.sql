UPDATE unalike_store SET tags = tags + $2
WHERE part = $6 AND tags + $2 <= $3 AND stripe_set = $4 AND server = $5 AND {fence}
RETURNING tags
