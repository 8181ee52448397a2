-- Seeding leases: which worker reads the source of a job, and what it found there.

CREATE TABLE sowings (
    job     TEXT PRIMARY KEY,             -- its id; or @ and a site, while a source has the site to itself
    sower   TEXT NOT NULL DEFAULT '',     -- the worker that reads; '' if none does
    until   REAL NOT NULL DEFAULT 0,      -- unless it is renewed
    trouble TEXT NOT NULL DEFAULT ''      -- what was wrong with the source
) STRICT, WITHOUT ROWID;

-- Sites found in the source: links may lead there.
CREATE TABLE sown_sites (
    job  TEXT NOT NULL,
    site TEXT NOT NULL,
    PRIMARY KEY (job, site)
) STRICT, WITHOUT ROWID;
