-- Alerts: their standing, the messages about them, the silences (schedule/contract.py, AlertBook and AlertDesk).

CREATE TABLE alerts (
    alert    TEXT NOT NULL,
    subject  TEXT NOT NULL,                 -- a site, a job, a pool; '' for the project as a whole
    standing TEXT NOT NULL,                 -- JSON
    PRIMARY KEY (alert, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE alert_notices (
    id       TEXT PRIMARY KEY,
    made_at  REAL NOT NULL,
    ended_at REAL,                          -- NULL until it is sent or given up
    notice   TEXT NOT NULL                  -- JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_notices_open ON alert_notices (made_at) WHERE ended_at IS NULL;
CREATE INDEX alert_notices_ended ON alert_notices (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE alert_changes (
    number INTEGER PRIMARY KEY,
    alert  TEXT NOT NULL,
    change TEXT NOT NULL                    -- JSON
) STRICT;

CREATE TABLE silences (
    id      TEXT PRIMARY KEY,
    until   REAL NOT NULL,
    silence TEXT NOT NULL                   -- JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE alert_memory (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    memory TEXT NOT NULL                    -- JSON
) STRICT;
