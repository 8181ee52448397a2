-- The pace that a site has taught by saying that it is asked too often: see frontier/learned_pace.py.

ALTER TABLE sites ADD COLUMN learned_interval REAL;                   -- seconds between two requests, as of refused_at
ALTER TABLE sites ADD COLUMN refused_at REAL NOT NULL DEFAULT 0;      -- when it said so last
