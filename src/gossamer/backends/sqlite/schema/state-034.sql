-- How exits fare at the sites that have refused them: an exit that one site banned rests for that site alone.

CREATE TABLE exit_sites (
    pool       TEXT NOT NULL,
    name       TEXT NOT NULL,               -- the exit, as in exits
    site       TEXT NOT NULL,
    run        INTEGER NOT NULL,            -- successes in a row; refusals in a row are negative
    strikes    INTEGER NOT NULL,            -- rests that were not made good yet
    rest_until REAL NOT NULL,               -- 0: it never had to rest for this site
    changed_at REAL NOT NULL,
    PRIMARY KEY (pool, site, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX exit_sites_changed ON exit_sites (pool, changed_at);
