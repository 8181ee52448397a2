-- A lease on a source says how long it was taken for, and addresses that many sites share have a pace of their own.

ALTER TABLE sowings ADD COLUMN length REAL NOT NULL DEFAULT 0;  -- seconds; 0: of a row from before

CREATE TABLE address_paces (
    address TEXT PRIMARY KEY,
    next_at REAL NOT NULL      -- when the next request to it may leave; a row in the past says nothing
) STRICT, WITHOUT ROWID;
CREATE INDEX address_paces_over ON address_paces (next_at);
