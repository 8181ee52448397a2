-- The pace learned from a site's answers that requests are too frequent: see frontier/learned_pace.py.

ALTER TABLE sites ADD COLUMN learned_interval REAL;                   -- seconds between two requests, as of refused_at
ALTER TABLE sites ADD COLUMN refused_at REAL NOT NULL DEFAULT 0;      -- when it last answered so
