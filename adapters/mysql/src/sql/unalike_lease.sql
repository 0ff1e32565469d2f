CREATE TABLE IF NOT EXISTS unalike_lease (
    namespace VARBINARY(128) NOT NULL,
    worker INT UNSIGNED NOT NULL,
    grant_id BINARY(16) NOT NULL,                -- of one acquire, never used again
    holder VARBINARY(128) NOT NULL,              -- for preference and display
    not_before_ms BIGINT UNSIGNED NOT NULL,
    valid_until_ms BIGINT UNSIGNED NOT NULL,
    acquired_ms BIGINT UNSIGNED NOT NULL,        -- by the server's clock
    is_final TINYINT UNSIGNED NOT NULL,          -- 1: released, or not to be extended
    PRIMARY KEY (namespace, worker),
    KEY unalike_lease_end (namespace, valid_until_ms),
    KEY unalike_lease_holder (namespace, holder, valid_until_ms),
    CONSTRAINT unalike_lease_bounds CHECK (not_before_ms < valid_until_ms
        OR is_final = 1 AND not_before_ms = valid_until_ms),
    CONSTRAINT unalike_lease_until CHECK (valid_until_ms BETWEEN 1 AND 9223372036854775807),
    CONSTRAINT unalike_lease_final CHECK (is_final IN (0, 1))
) ENGINE = InnoDB
