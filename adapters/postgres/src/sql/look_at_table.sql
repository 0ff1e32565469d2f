SELECT c.relkind::text AS kind, c.relpersistence::text AS persistence,
    c.relhastriggers OR c.relhasrules OR c.relhassubclass OR c.relispartition OR c.relrowsecurity AS is_odd,
    EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = c.oid) AS is_subscribed,
    COALESCE((SELECT string_agg(a.attname, ',' ORDER BY k.place)
        FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place), pg_attribute a
        WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND a.attrelid = c.oid AND a.attnum = k.attnum), '')
        AS key,
    ARRAY(SELECT a.attname || ' ' || a.atttypid::regtype::text || COALESCE(' ' || o.collname, '')
        FROM pg_attribute a LEFT JOIN pg_collation o ON o.oid = a.attcollation AND o.collname = 'C'
            AND o.collnamespace = 'pg_catalog'::regnamespace
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
FROM pg_class c WHERE c.oid = to_regclass($1)
