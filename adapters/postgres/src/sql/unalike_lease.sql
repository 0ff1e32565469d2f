CREATE TABLE IF NOT EXISTS unalike_lease (
    namespace TEXT COLLATE "C" NOT NULL,
    worker BIGINT NOT NULL CHECK (worker >= 0),
    grant_id BYTEA NOT NULL CHECK (octet_length(grant_id) = 16), -- of one acquire, never used again
    holder TEXT COLLATE "C" NOT NULL,             -- for preference and display
    not_before_ms BIGINT NOT NULL CHECK (not_before_ms >= 0),
    valid_until_ms BIGINT NOT NULL CHECK (valid_until_ms >= not_before_ms),
    acquired_ms BIGINT NOT NULL,                  -- by the server's clock
    is_final BOOLEAN NOT NULL,                    -- released, or not to be extended
    PRIMARY KEY (namespace, worker)
) WITH (fillfactor = 80)
