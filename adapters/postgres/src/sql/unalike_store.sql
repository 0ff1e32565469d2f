CREATE TABLE IF NOT EXISTS unalike_store (
    part TEXT COLLATE "C" NOT NULL PRIMARY KEY,   -- unalike, sequence, leases
    version BIGINT NOT NULL,
    server TEXT NOT NULL,                         -- the only one that is used
    identity TEXT NOT NULL,                       -- the name of these data, 32 hexadecimal digits
    tags BIGINT NOT NULL DEFAULT 0,               -- rows in unalike_tag, sub-keys not counted
    stripe_set BYTEA NOT NULL DEFAULT '\x00000000000000000000000000000000', -- zeros: it stands alone
    stripe_index BIGINT NOT NULL DEFAULT 0,
    stripe_count BIGINT NOT NULL DEFAULT 0,
    max_horizon_ms BIGINT NOT NULL DEFAULT 0,     -- of leases: the greatest that a program ever allowed
    floor_ms BIGINT NOT NULL DEFAULT 0            -- of leases: none of a namespace that is new here begins before
)
