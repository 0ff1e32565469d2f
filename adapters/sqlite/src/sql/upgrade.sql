ALTER TABLE store ADD COLUMN stripe_set BLOB CHECK (length(stripe_set) = 16);
ALTER TABLE store ADD COLUMN stripe_index INTEGER;
ALTER TABLE store ADD COLUMN stripe_count INTEGER;
CREATE TRIGGER tag_granted BEFORE UPDATE OF grant_start ON tag
WHEN NEW.version = OLD.version + 1 AND (SELECT stripe_set FROM store) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'this file is one of several stripes, which this version of unalike does not know'); END;
PRAGMA user_version = 2;
