SELECT 'trigger' AS kind, name, tbl_name AS of FROM sqlite_schema
WHERE type = 'trigger' AND name NOT IN ('tag_created', 'tag_deleted', 'tag_granted')
    AND lower(tbl_name) IN ('tag', 'store', 'namespace', 'lease')
UNION ALL
SELECT 'table', name, '' FROM pragma_table_list AS made
WHERE schema = 'main' AND name IN ('tag', 'namespace', 'lease') AND NOT (type = 'table' AND wr = 1 AND strict = 1
    AND (SELECT group_concat(name) FROM (SELECT name FROM pragma_table_info(made.name) WHERE pk > 0 ORDER BY pk))
        = CASE made.name WHEN 'tag' THEN 'tag' WHEN 'lease' THEN 'namespace,worker' ELSE 'namespace' END)
