-- How far the reading of a job's source has come: one worker at a time reads it.

CREATE TABLE sowings (
    job     TEXT PRIMARY KEY,             -- its id
    sower   TEXT NOT NULL DEFAULT '',     -- the worker that reads; '' when nobody does
    until   REAL NOT NULL DEFAULT 0,      -- so long, unless it says more
    sites   TEXT NOT NULL DEFAULT '',     -- that links may lead to, one in each line
    trouble TEXT NOT NULL DEFAULT ''      -- what was wrong with the source
) STRICT, WITHOUT ROWID;
