-- What a worker did in the last minute, and what it works on: for those who decide how many workers there should be.

ALTER TABLE workers ADD COLUMN pace REAL NOT NULL DEFAULT 0;       -- pages a second
ALTER TABLE workers ADD COLUMN busy REAL NOT NULL DEFAULT 0;       -- share of its strength that they took
ALTER TABLE workers ADD COLUMN serves TEXT NOT NULL DEFAULT '';    -- routes or kinds, separated by commas; '': all
