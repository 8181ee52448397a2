-- Schedules, and paused jobs.
--
--   schedules   what is scraped, when, and the progress of each
--   scheduling  one row: which scheduler leads, and how often schedules were changed
--
-- Only the leading scheduler decides about ticks: `token` grows with every change of leader, and writes of an older
-- leader are refused. `version` changes with every write, even after a schedule was removed and written again.

-- Nothing of a paused job is handed out.
ALTER TABLE jobs ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;

CREATE TABLE schedules (
    name     TEXT PRIMARY KEY,
    version  INTEGER NOT NULL,
    standing TEXT NOT NULL                -- JSON of ScheduleProgress
) STRICT, WITHOUT ROWID;

CREATE TABLE scheduling (
    only    INTEGER PRIMARY KEY CHECK (only = 1),
    leader  TEXT NOT NULL DEFAULT '',     -- '' after it resigned
    token   INTEGER NOT NULL DEFAULT 0,
    until   REAL NOT NULL DEFAULT 0,
    changes INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO scheduling (only) VALUES (1);

CREATE VIEW schedule_list AS
SELECT name, json_extract(standing, '$.schedule.spider') AS spider,
       json_extract(standing, '$.schedule.trigger') AS trigger, json_extract(standing, '$.paused') AS paused,
       json_extract(standing, '$.runs') AS runs, json_extract(standing, '$.last_job') AS last_job,
       datetime(json_extract(standing, '$.last_due'), 'unixepoch') AS last_due,
       json_extract(standing, '$.trouble') AS trouble
FROM schedules;
