-- A worker that waits in vain for a slot of a site whose slots other workers keep busy: see leasing.py.

ALTER TABLE sites ADD COLUMN starved TEXT;                            -- its name
ALTER TABLE sites ADD COLUMN starved_at REAL NOT NULL DEFAULT 0;      -- when it last noted so
