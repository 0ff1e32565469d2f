SELECT d.number, pg_logical_emit_message(true, 'unalike', '') IS NOT NULL AS is_logged
FROM (
    SELECT max(number) AS number FROM (
        SELECT nextval(c.oid::regclass) AS number FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid,
            generate_series(1, $3)
        WHERE c.relname = $2 AND c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind = 'S'
            AND c.relpersistence = 'p' AND s.seqincrement > 0 AND s.seqstart > 0 AND NOT s.seqcycle
            AND CASE WHEN c.relname = $2 AND c.relkind = 'S' THEN COALESCE(pg_sequence_last_value(c.oid), 1) > 0 END AND {fence}
        OFFSET 0
    ) AS drawn
) AS d WHERE d.number IS NOT NULL
