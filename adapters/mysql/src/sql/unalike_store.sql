CREATE TABLE IF NOT EXISTS unalike_store (
    id TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
    schema_version INT UNSIGNED NOT NULL,
    server VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- the only one that is used
    tags BIGINT UNSIGNED NOT NULL DEFAULT 0,                                -- rows in unalike_tag, sub-keys not counted
    stripe_set BINARY(16) NOT NULL DEFAULT X'00000000000000000000000000000000', -- zeros: it stands alone
    stripe_index INT UNSIGNED NOT NULL DEFAULT 0,
    stripe_count INT UNSIGNED NOT NULL DEFAULT 0,
    stripe_tags BIGINT UNSIGNED NOT NULL DEFAULT 0,
    CONSTRAINT unalike_store_stripe
        CHECK (stripe_set = X'00000000000000000000000000000000' OR stripe_tags = tags)
) ENGINE = InnoDB
