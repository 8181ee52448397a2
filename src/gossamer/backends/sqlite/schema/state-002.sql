-- What all workers share about routes.
--
--   standings  the learned route of each site that blocks: the route at which its pages start
--   purses     budgets: tokens spent by a job, on a day, on a site and day

CREATE TABLE standings (
    site       TEXT PRIMARY KEY,
    route      TEXT NOT NULL,
    since      REAL NOT NULL,
    reason     TEXT NOT NULL,               -- the block that led here
    blocks     INTEGER NOT NULL,
    recheck_at REAL NOT NULL,               -- when a cheaper route may be tried again
    patience   REAL NOT NULL                -- seconds to wait after that, if it fails again
) STRICT, WITHOUT ROWID;

CREATE INDEX standings_latest ON standings (since DESC, site);

CREATE TABLE purses (
    name  TEXT PRIMARY KEY,                 -- job/..., day/2027-01-31, domain/2027-01-31/shop.example
    spent INTEGER NOT NULL                  -- billionths of a token
) STRICT, WITHOUT ROWID;
