-- What a worker did in the last minute, and what it serves: the basis for the number of workers.

ALTER TABLE workers ADD COLUMN pace REAL NOT NULL DEFAULT 0;       -- pages a second
ALTER TABLE workers ADD COLUMN busy REAL NOT NULL DEFAULT 0;       -- share of its capacity in use
ALTER TABLE workers ADD COLUMN serves TEXT NOT NULL DEFAULT '';    -- routes or kinds, separated by commas; '': all
