SELECT FROM pg_class
WHERE relname = $1 AND relkind = 'S' AND relnamespace = to_regnamespace(quote_ident(current_schema()))
