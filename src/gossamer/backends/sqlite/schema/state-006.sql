-- Seeding leases: which worker reads the source of a job, and what was found in the source.

CREATE TABLE sowings (
    job     TEXT PRIMARY KEY,             -- its id; or @ and a site, for the time that a source has it to itself
    sower   TEXT NOT NULL DEFAULT '',     -- the worker that reads; '' when nobody does
    until   REAL NOT NULL DEFAULT 0,      -- so long, unless it says more
    trouble TEXT NOT NULL DEFAULT ''      -- what was wrong with the source
) STRICT, WITHOUT ROWID;

-- Sites that were found in it: links may lead there.
CREATE TABLE sown_sites (
    job  TEXT NOT NULL,
    site TEXT NOT NULL,
    PRIMARY KEY (job, site)
) STRICT, WITHOUT ROWID;
