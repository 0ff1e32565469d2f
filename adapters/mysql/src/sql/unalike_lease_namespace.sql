CREATE TABLE IF NOT EXISTS unalike_lease_namespace (
    namespace VARBINARY(128) NOT NULL PRIMARY KEY,
    timestamp_bits TINYINT UNSIGNED NOT NULL,
    datacenter_bits TINYINT UNSIGNED NOT NULL,
    worker_bits TINYINT UNSIGNED NOT NULL,
    sequence_bits TINYINT UNSIGNED NOT NULL,
    sequence_first TINYINT UNSIGNED NOT NULL,    -- 1: the sequence stands before the worker
    epoch_ms BIGINT UNSIGNED NOT NULL,
    tick_ms INT UNSIGNED NOT NULL,
    max_horizon_ms BIGINT UNSIGNED NOT NULL,     -- how far ahead of the server's clock a lease may reach
    floor_ms BIGINT UNSIGNED NOT NULL,           -- no lease begins before
    version INT UNSIGNED NOT NULL,
    CONSTRAINT unalike_lease_namespace_order CHECK (sequence_first IN (0, 1)),
    CONSTRAINT unalike_lease_namespace_tick CHECK (tick_ms >= 1 AND tick_ms <= max_horizon_ms)
) ENGINE = InnoDB
