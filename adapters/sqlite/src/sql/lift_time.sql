UPDATE tag SET version = version + 1,
    settled = max(watermark, CASE WHEN tag LIKE ?3 THEN ?2 ELSE watermark + min(?1, 9223372036854775807 - watermark) END),
    watermark = max(watermark, CASE WHEN tag LIKE ?3 THEN ?2 ELSE watermark + min(?1, 9223372036854775807 - watermark) END)
WHERE tag LIKE ?3 OR tag LIKE ?4
