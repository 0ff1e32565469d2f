CREATE TABLE IF NOT EXISTS unalike_identity (
    dialect VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    mark CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL -- random, in hexadecimal digits
) ENGINE = InnoDB /*M!100304 WITH SYSTEM VERSIONING */
