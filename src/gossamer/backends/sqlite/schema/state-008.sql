-- Jobs take turns at a site that only one of them can have at a time (frontier/turns.py).

ALTER TABLE sites ADD COLUMN latest INTEGER;        -- the job that was served last
ALTER TABLE sites ADD COLUMN wanted INTEGER;        -- of those that were refused since, the one served longest ago,
ALTER TABLE sites ADD COLUMN wanted_turn REAL;      -- and when that was
ALTER TABLE sites ADD COLUMN wanted_since REAL;     -- since when a job is kept waiting
ALTER TABLE sites ADD COLUMN offered_at REAL;       -- since when the wanting job could have the site
