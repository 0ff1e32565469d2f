UPDATE store SET stripe_set = ?1, stripe_index = ?2, stripe_count = ?3
WHERE stripe_set IS ?4 AND stripe_index IS ?5 AND stripe_count IS ?6
RETURNING id
