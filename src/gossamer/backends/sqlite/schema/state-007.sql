-- Jobs that have ended: found by name, and deleted.
--
--   forgetting  numbers of deleted jobs whose pages are not deleted yet. Their rows in `jobs` are deleted at once, pages
--               in portions: one transaction for all of them would block every other worker.

CREATE TABLE forgetting (job INTEGER PRIMARY KEY) STRICT;

CREATE INDEX jobs_named ON jobs (name, number);

-- Replaced and cancelled jobs whose open pages are not dropped yet.
CREATE INDEX jobs_dropping ON jobs (ending) WHERE ending IN ('replaced', 'cancelled') AND queued + waiting > 0;
