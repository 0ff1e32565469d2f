CREATE TABLE IF NOT EXISTS unalike_tag (
    tag TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    start BIGINT NOT NULL CHECK (start >= 1),
    mode TEXT NOT NULL CHECK (mode IN ('buffered', 'ordered')),
    step_policy TEXT NOT NULL CHECK (step_policy IN ('fixed', 'adaptive')),
    step BIGINT NOT NULL,                         -- of an adaptive policy: the first
    step_min BIGINT,                              -- these four: of an adaptive policy only
    step_max BIGINT,
    grow_below_ms BIGINT,
    shrink_above_ms BIGINT,
    refill_policy TEXT NOT NULL CHECK (refill_policy IN ('share-consumed', 'remaining')),
    refill BIGINT NOT NULL,                       -- a percentage, or how many remain
    grant_start BIGINT NOT NULL CHECK (grant_start >= 1), -- of the newest grant
    settled BIGINT NOT NULL CHECK (settled >= 0), -- no release lowers the watermark below this
    watermark BIGINT NOT NULL CHECK (watermark >= settled), -- the greatest number that may have been handed out
    version BIGINT NOT NULL DEFAULT 0,            -- grows with every grant, release and raise
    mark BYTEA NOT NULL CHECK (octet_length(mark) = 16) -- of the store and its place among stripes
) WITH (fillfactor = 50)
