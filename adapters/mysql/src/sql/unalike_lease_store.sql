CREATE TABLE IF NOT EXISTS unalike_lease_store (
    id TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
    version INT UNSIGNED NOT NULL,
    max_horizon_ms BIGINT UNSIGNED NOT NULL,     -- the greatest that a program ever allowed
    floor_ms BIGINT UNSIGNED NOT NULL DEFAULT 0  -- no lease of a namespace that is new here begins before
) ENGINE = InnoDB
