SELECT d.numbers, d.increment, d.increments, d.start_value,
    (pg_logical_emit_message(true, 'unalike', '') - '0/0')::bigint AS log_position
FROM (
    SELECT array_agg(number) AS numbers, min(increment) AS increment, count(DISTINCT increment) AS increments,
        min(start_value) AS start_value
    FROM (
        SELECT nextval(c.oid::regclass) AS number, (pg_sequence_parameters(c.oid)).increment,
            (pg_sequence_parameters(c.oid)).start_value
        FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid,
            generate_series(1, LEAST($4, ($3 + s.seqincrement - 1) / s.seqincrement))
        WHERE c.relname = $2 AND c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind = 'S'
            AND c.relpersistence = 'p' AND s.seqincrement > 0 AND s.seqstart > 0 AND NOT s.seqcycle
            AND CASE WHEN c.relname = $2 AND c.relkind = 'S' THEN COALESCE(pg_sequence_last_value(c.oid), 1) > 0 END AND {fence}
        OFFSET 0
    ) AS drawn
) AS d WHERE d.numbers IS NOT NULL
