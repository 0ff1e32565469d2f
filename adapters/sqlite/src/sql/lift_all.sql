UPDATE tag SET version = version + 1,
    settled = watermark + min(?1, 9223372036854775807 - watermark),
    watermark = watermark + min(?1, 9223372036854775807 - watermark)
WHERE NOT (tag = ?2 OR tag = ?3 OR tag LIKE ?4 OR tag LIKE ?5 OR tag LIKE ?6)
