-- The shelf (model/shelf.py): small, cold state of all kinds, in the place of a table for each.

DROP TABLE api_keys;
DROP TABLE answers;
DROP TABLE audit;
DROP TABLE callbacks;
DROP TABLE callback_secrets;
DROP TABLE sessions;
DROP TABLE spools;
DROP TABLE alerts;
DROP TABLE alert_notices;
DROP TABLE alert_changes;
DROP TABLE alert_memory;
DROP TABLE silences;

CREATE TABLE shelf (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,        -- JSON
    stamp BLOB NOT NULL,        -- random, new with every write
    at REAL,                    -- the time by which the row is listed
    until REAL,                 -- when it expires
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX shelf_by_time ON shelf (kind, at, key) WHERE at IS NOT NULL;
CREATE INDEX shelf_by_end ON shelf (kind, until) WHERE until IS NOT NULL;
