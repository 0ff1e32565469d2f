PRAGMA application_id = 1970168172;
PRAGMA user_version = 2;

-- One row: how many tags there are, sub-keys not counted, so that the limit costs no count, and the place among stripes, if there is one.
CREATE TABLE store (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    tags INTEGER NOT NULL CHECK (tags >= 0),
    stripe_set BLOB CHECK (length(stripe_set) = 16),
    stripe_index INTEGER,
    stripe_count INTEGER
) STRICT;
INSERT INTO store (id, tags) VALUES (1, 0);

-- One row: what tells this store from any other, for people. A copy of the file has the same.
CREATE TABLE identity (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    mark BLOB NOT NULL CHECK (length(mark) = 16)
) STRICT;
INSERT INTO identity (id, mark) VALUES (1, randomblob(16));

CREATE TABLE tag (
    tag TEXT NOT NULL PRIMARY KEY,
    start INTEGER NOT NULL CHECK (start >= 1),
    mode TEXT NOT NULL CHECK (mode IN ('buffered', 'ordered')),
    step_policy TEXT NOT NULL CHECK (step_policy IN ('fixed', 'adaptive')),
    step INTEGER NOT NULL,          -- of an adaptive policy: the first
    step_min INTEGER,               -- these four: of an adaptive policy only
    step_max INTEGER,
    grow_below_ms INTEGER,
    shrink_above_ms INTEGER,
    refill_policy TEXT NOT NULL CHECK (refill_policy IN ('share-consumed', 'remaining')),
    refill INTEGER NOT NULL,        -- a percentage, or how many remain
    generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
    grant_start INTEGER NOT NULL CHECK (grant_start >= 1),  -- of the newest grant
    settled INTEGER NOT NULL CHECK (settled >= 0),          -- no release lowers the watermark below this
    watermark INTEGER NOT NULL CHECK (watermark >= settled),
    version INTEGER NOT NULL DEFAULT 0 CHECK (version >= 0)
) STRICT, WITHOUT ROWID;

-- The character 31 stands in the names of sub-keys.
CREATE TRIGGER tag_created AFTER INSERT ON tag WHEN instr(NEW.tag, char(31)) = 0
BEGIN UPDATE store SET tags = tags + 1; END;
CREATE TRIGGER tag_deleted AFTER DELETE ON tag WHEN instr(OLD.tag, char(31)) = 0
BEGIN UPDATE store SET tags = tags - 1; END;

-- Programs that know stripes count the version up by 2 with the grants of a stripe. Those before them, which may have the
-- file open, count by 1, and would hand out the numbers as if the store stood alone.
CREATE TRIGGER tag_granted BEFORE UPDATE OF grant_start ON tag
WHEN NEW.version = OLD.version + 1 AND (SELECT stripe_set FROM store) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'this file is one of several stripes, which this version of unalike does not know'); END;

-- What a namespace was bound to at its first use.
CREATE TABLE namespace (
    namespace TEXT NOT NULL PRIMARY KEY,
    timestamp_bits INTEGER NOT NULL,
    datacenter_bits INTEGER NOT NULL,
    worker_bits INTEGER NOT NULL,
    sequence_bits INTEGER NOT NULL,
    field_order TEXT NOT NULL CHECK (field_order IN ('worker-first', 'sequence-first')),
    epoch_ms INTEGER NOT NULL,
    tick_ms INTEGER NOT NULL,
    max_horizon_ms INTEGER NOT NULL CHECK (max_horizon_ms >= 1)
) STRICT, WITHOUT ROWID;

-- The newest lease of each worker; valid_until_ms is the greatest end recorded for it.
CREATE TABLE lease (
    namespace TEXT NOT NULL REFERENCES namespace (namespace),
    worker INTEGER NOT NULL CHECK (worker >= 0),
    grant_id BLOB NOT NULL CHECK (length(grant_id) = 16),
    holder TEXT NOT NULL,
    not_before_ms INTEGER NOT NULL CHECK (not_before_ms >= 0),
    valid_until_ms INTEGER NOT NULL CHECK (valid_until_ms >= not_before_ms),
    acquired_ms INTEGER NOT NULL,
    released INTEGER NOT NULL DEFAULT 0 CHECK (released IN (0, 1)),
    PRIMARY KEY (namespace, worker)
) STRICT, WITHOUT ROWID;
CREATE INDEX lease_by_end ON lease (namespace, valid_until_ms);
CREATE INDEX lease_by_holder ON lease (namespace, holder, valid_until_ms);
