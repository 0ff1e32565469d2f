CREATE TABLE IF NOT EXISTS unalike_lease_namespace (
    namespace TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    timestamp_bits BIGINT NOT NULL,
    datacenter_bits BIGINT NOT NULL,
    worker_bits BIGINT NOT NULL,
    sequence_bits BIGINT NOT NULL,
    sequence_first BIGINT NOT NULL CHECK (sequence_first IN (0, 1)), -- 1: the sequence stands before the worker
    epoch_ms BIGINT NOT NULL,
    tick_ms BIGINT NOT NULL CHECK (tick_ms >= 1),
    max_horizon_ms BIGINT NOT NULL CHECK (max_horizon_ms >= tick_ms), -- how far ahead of the clock a lease may reach
    floor_ms BIGINT NOT NULL,                     -- no lease begins before
    version BIGINT NOT NULL
)
