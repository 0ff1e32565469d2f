DROP TRIGGER tag_created;
DROP TRIGGER tag_deleted;
CREATE TRIGGER tag_created AFTER INSERT ON tag WHEN instr(NEW.tag, char(31)) = 0
BEGIN UPDATE store SET tags = tags + 1; END;
CREATE TRIGGER tag_deleted AFTER DELETE ON tag WHEN instr(OLD.tag, char(31)) = 0
BEGIN UPDATE store SET tags = tags - 1; END;
UPDATE store SET tags = (SELECT count(*) FROM tag WHERE instr(tag, char(31)) = 0);
