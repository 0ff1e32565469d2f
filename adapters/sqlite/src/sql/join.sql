UPDATE store SET stripe_set = ?1, stripe_index = ?2, stripe_count = ?3
WHERE stripe_set IS NULL AND NOT EXISTS (SELECT 1 FROM tag WHERE version > 0)
RETURNING id
