-- A job's own rate at a site, and the priority of jobs at a site: see frontier/politeness.py and frontier/turns.py.

CREATE TABLE job_paces (
    job      INTEGER NOT NULL,
    site     INTEGER NOT NULL,
    next_at  REAL NOT NULL,   -- the job's own bucket at the site: when it is full again
    interval REAL NOT NULL,   -- of the last grant, in case its worker is lost
    PRIMARY KEY (job, site)
) STRICT, WITHOUT ROWID;

ALTER TABLE sites ADD COLUMN wanted_priority INTEGER NOT NULL DEFAULT 0;  -- of the job that wants the site
ALTER TABLE sites ADD COLUMN claim INTEGER;                               -- the job that comes back to it
ALTER TABLE sites ADD COLUMN claim_priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sites ADD COLUMN claim_until REAL NOT NULL DEFAULT 0;
ALTER TABLE sites ADD COLUMN claim_run INTEGER NOT NULL DEFAULT 0;
