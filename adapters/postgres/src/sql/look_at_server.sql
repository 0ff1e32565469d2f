SELECT (pg_control_system()).system_identifier AS system_identifier,
    pg_is_in_recovery() AS is_in_recovery,
    CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_insert_lsn()) END AS log_file,
    CASE WHEN pg_is_in_recovery() THEN 0 ELSE (pg_current_wal_insert_lsn() - '0/0')::bigint END AS log_position,
    (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS database_oid,
    to_regclass('unalike_store')::oid::bigint AS table_oid,
    current_setting('fsync') AS fsync,
    current_setting('zero_damaged_pages') AS zero_damaged_pages,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('server_version_num') AS version,
    current_setting('server_encoding') AS encoding,
    current_setting('search_path') AS search_path,
    current_setting('unalike.session', true) AS session,
    COALESCE((SELECT s.name::text FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place)
        WHERE EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = s.name AND c.relname = 'unalike_store' AND c.relkind = 'r')
        ORDER BY s.place LIMIT 1), current_schema()::text) AS schema
