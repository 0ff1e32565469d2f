CREATE TABLE IF NOT EXISTS unalike_tag (
    tag VARBINARY(128) NOT NULL PRIMARY KEY,
    start BIGINT UNSIGNED NOT NULL,
    mode VARCHAR(16) CHARACTER SET ascii NOT NULL,            -- buffered, ordered
    step_policy VARCHAR(16) CHARACTER SET ascii NOT NULL,     -- fixed, adaptive
    step BIGINT UNSIGNED NOT NULL,                            -- of an adaptive policy: the first
    step_min BIGINT UNSIGNED,                                 -- these four: of an adaptive policy only
    step_max BIGINT UNSIGNED,
    grow_below_ms BIGINT UNSIGNED,
    shrink_above_ms BIGINT UNSIGNED,
    refill_policy VARCHAR(16) CHARACTER SET ascii NOT NULL,   -- share-consumed, remaining
    refill BIGINT UNSIGNED NOT NULL,                          -- a percentage, or how many remain
    settled BIGINT UNSIGNED NOT NULL,                         -- no release lowers the watermark below this
    watermark BIGINT UNSIGNED NOT NULL,                       -- the greatest number that may have been handed out
    version BIGINT UNSIGNED NOT NULL DEFAULT 0,               -- grows with every grant, release and raise
    stripe_set BINARY(16) NOT NULL DEFAULT X'00000000000000000000000000000000',
    stripe_version BIGINT UNSIGNED NOT NULL DEFAULT 0,
    CONSTRAINT unalike_tag_start CHECK (start >= 1 AND start <= 9223372036854775807),
    CONSTRAINT unalike_tag_mode CHECK (mode IN ('buffered', 'ordered')),
    CONSTRAINT unalike_tag_step CHECK (step_policy IN ('fixed', 'adaptive')),
    CONSTRAINT unalike_tag_refill CHECK (refill_policy IN ('share-consumed', 'remaining')),
    CONSTRAINT unalike_tag_settled CHECK (settled <= watermark),
    CONSTRAINT unalike_tag_watermark CHECK (watermark <= 9223372036854775807),
    CONSTRAINT unalike_tag_stripe
        CHECK (stripe_set = X'00000000000000000000000000000000' OR stripe_version = version)
) ENGINE = InnoDB
