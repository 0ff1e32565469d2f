CREATE TABLE identity (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    mark BLOB NOT NULL CHECK (length(mark) = 16)
) STRICT;
INSERT INTO identity (id, mark) VALUES (1, randomblob(16));
