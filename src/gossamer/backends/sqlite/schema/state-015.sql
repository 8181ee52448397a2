-- The outcome of a job, and routes learned by URL pattern within a site.

ALTER TABLE jobs ADD COLUMN outcome TEXT NOT NULL DEFAULT '';           -- JSON; '': what the ending implies
ALTER TABLE jobs ADD COLUMN start TEXT NOT NULL DEFAULT '';             -- a digest of the seeds of its spider

CREATE TABLE standings_by_pattern (
    site       TEXT NOT NULL,
    pattern    TEXT NOT NULL DEFAULT '',    -- of its pages' addresses (routing/site_memory.py); '': all of the site
    route      TEXT NOT NULL,
    since      REAL NOT NULL,
    reason     TEXT NOT NULL,               -- the block that led here
    blocks     INTEGER NOT NULL,
    recheck_at REAL NOT NULL,               -- when a cheaper route may be tried again
    patience   REAL NOT NULL,               -- seconds to wait after that, if it fails again
    PRIMARY KEY (site, pattern)
) STRICT, WITHOUT ROWID;

-- A page made by scripts says nothing about the other pages of its site: that is learned again, by pattern.
INSERT INTO standings_by_pattern SELECT site, '', route, since, reason, blocks, recheck_at, patience FROM standings
WHERE reason NOT IN ('shell', 'shrunk');
DROP TABLE standings;
ALTER TABLE standings_by_pattern RENAME TO standings;
CREATE INDEX standings_latest ON standings (since DESC, site, pattern);
