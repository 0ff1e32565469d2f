SELECT set_config('unalike.session', $1, false),
    set_config('search_path', quote_ident($2) || ', pg_temp', false),
    set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    set_config('lock_timeout', $3, false),
    set_config('statement_timeout', $4, false),
    set_config('idle_in_transaction_session_timeout', $5, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('default_transaction_read_only', 'off', false),
    set_config('standard_conforming_strings', 'on', false),
    set_config('row_security', 'off', false),
    set_config('quote_all_identifiers', 'off', false),
    CASE WHEN current_setting('idle_session_timeout', true) <> '0'
        THEN set_config('idle_session_timeout', '0', false) END,
    CASE WHEN current_setting('transaction_timeout', true) <> '0' THEN set_config('transaction_timeout', '0', false) END
