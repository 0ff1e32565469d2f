SELECT c.relname::text AS name, c.relpersistence::text AS persistence, s.seqstart AS start, s.seqincrement AS increment,
    s.seqcycle AS cycles, s.seqcache AS cache, s.seqmax AS max, pg_sequence_last_value(c.oid) AS last
FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid
WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind = 'S'
    AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'USAGE') AND has_sequence_privilege(c.oid, 'SELECT') END
    AND (c.relname::text COLLATE "C" > $1 AND $2 = '' OR c.relname = $2)
ORDER BY c.relname::text COLLATE "C" LIMIT $3
