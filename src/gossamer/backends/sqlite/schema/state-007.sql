-- Jobs that have ended: found by name, and forgotten.
--
--   forgetting  numbers of jobs that were forgotten and whose pages are not deleted yet. The row in `jobs` is deleted
--               at once, the pages in portions: one transaction for all of them would hold up every other worker.

CREATE TABLE forgetting (job INTEGER PRIMARY KEY) STRICT;

CREATE INDEX jobs_named ON jobs (name, number);

-- Replaced and cancelled jobs whose open pages are not dropped yet.
CREATE INDEX jobs_dropping ON jobs (ending) WHERE ending IN ('replaced', 'cancelled') AND queued + waiting > 0;
