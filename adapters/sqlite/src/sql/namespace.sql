SELECT *, coalesce((SELECT watermark FROM tag WHERE tag = 'unalike-new-names' || char(31) || 'leases'), 0) AS floor_ms
FROM namespace WHERE namespace = ?1
