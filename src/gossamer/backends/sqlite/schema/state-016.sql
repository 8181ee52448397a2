-- A lease on a source stores its length, and addresses that many sites share have a pace.

ALTER TABLE sowings ADD COLUMN length REAL NOT NULL DEFAULT 0;  -- seconds; 0: of a row from before

CREATE TABLE address_paces (
    address TEXT PRIMARY KEY,
    next_at REAL NOT NULL      -- when the next request to it may leave; a row in the past means nothing
) STRICT, WITHOUT ROWID;
CREATE INDEX address_paces_over ON address_paces (next_at);
