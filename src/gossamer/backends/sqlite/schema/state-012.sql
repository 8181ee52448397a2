-- Sites that cannot be reached rest as a whole (frontier/away.py).

ALTER TABLE sites ADD COLUMN away_host TEXT NOT NULL DEFAULT '';        -- '' also when several hosts failed in a row
ALTER TABLE sites ADD COLUMN away_reason TEXT NOT NULL DEFAULT '';      -- of the last failure
ALTER TABLE sites ADD COLUMN away_since REAL NOT NULL DEFAULT 0;
ALTER TABLE sites ADD COLUMN strikes INTEGER NOT NULL DEFAULT 0;        -- failures in a row; 0: the site is reachable
ALTER TABLE sites ADD COLUMN given_up_until REAL NOT NULL DEFAULT 0;
ALTER TABLE sites ADD COLUMN answered_at REAL NOT NULL DEFAULT 0;       -- when a page was last settled; 0: never
