SELECT count(*) FROM sqlite_schema WHERE name IN ('tag_created', 'tag_deleted') AND instr(sql, 'char(31)') = 0
