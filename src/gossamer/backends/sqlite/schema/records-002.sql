-- Records that are gone, versions that jobs saw, shapes of items, and the quality of both records and pages.
--
--   records     gone_since: not found since then. schema: the shape it was made with.
--               revision: grows with every change, so that a cursor selects what changed after it
--   superseded  gone: it was not found at that time. A record that is gone keeps its last data
--   sightings   version: the one that the job saw last; 0: unknown, or not kept
--   pages       spider, failure: the spider that parsed it, and why it yielded nothing ('' if all is well); as in visits
--               content, rhythm: a hash of what it yielded last, and how often that has changed
--   schemas     every shape that items of a type have had
--   quality     the counts of the checks, by day, spider, type, field and rule; rule '' counts all
--   store       the id of this file; a cursor is valid only in it

ALTER TABLE records ADD COLUMN gone_since REAL;
ALTER TABLE records ADD COLUMN schema TEXT NOT NULL DEFAULT '';
ALTER TABLE records ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

CREATE INDEX records_revision ON records (revision);

ALTER TABLE superseded ADD COLUMN gone INTEGER NOT NULL DEFAULT 0;
ALTER TABLE superseded ADD COLUMN schema TEXT NOT NULL DEFAULT '';

ALTER TABLE sightings ADD COLUMN version INTEGER NOT NULL DEFAULT 0;

ALTER TABLE pages ADD COLUMN spider TEXT NOT NULL DEFAULT '';
ALTER TABLE pages ADD COLUMN failure TEXT NOT NULL DEFAULT '';
ALTER TABLE pages ADD COLUMN content BLOB NOT NULL DEFAULT x'';
ALTER TABLE pages ADD COLUMN rhythm TEXT NOT NULL DEFAULT '';
ALTER TABLE visits ADD COLUMN spider TEXT NOT NULL DEFAULT '';
ALTER TABLE visits ADD COLUMN failure TEXT NOT NULL DEFAULT '';

-- The spider of the old pages: a job is the work of one spider, and its records name it.
UPDATE pages SET spider = jobs.spider
FROM (SELECT job, min(spider) AS spider FROM records GROUP BY job HAVING min(spider) = max(spider)) AS jobs
WHERE jobs.job = pages.job;

UPDATE visits SET spider = jobs.spider
FROM (SELECT job, min(spider) AS spider FROM records GROUP BY job HAVING min(spider) = max(spider)) AS jobs
WHERE jobs.job = visits.job;

CREATE TABLE schemas (
    type         TEXT NOT NULL,
    id           TEXT NOT NULL,             -- a hash of the definition
    definition   TEXT NOT NULL,             -- JSON object
    first_stored REAL NOT NULL,
    PRIMARY KEY (type, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE quality (
    day     TEXT NOT NULL,                  -- UTC, 2027-01-31
    spider  TEXT NOT NULL,
    type    TEXT NOT NULL,
    field   TEXT NOT NULL,
    rule    TEXT NOT NULL,
    checked INTEGER NOT NULL,
    filled  INTEGER NOT NULL,
    faulty  INTEGER NOT NULL,
    PRIMARY KEY (day, spider, type, field, rule)
) STRICT, WITHOUT ROWID;

CREATE TABLE store (id TEXT NOT NULL) STRICT;
INSERT INTO store (id) VALUES (lower(hex(randomblob(6))));

DROP VIEW record_list;
DROP VIEW record_history;
DROP VIEW page_list;
DROP VIEW visit_list;

CREATE VIEW record_list AS
SELECT type, site, key, url, job, spider, data, version, datetime(first_seen, 'unixepoch') AS first_seen,
       datetime(last_changed, 'unixepoch') AS last_changed, datetime(last_checked, 'unixepoch') AS last_checked,
       datetime(gone_since, 'unixepoch') AS gone_since
FROM records;

CREATE VIEW record_history AS
SELECT records.type, records.site, records.key, past.version, datetime(past.at, 'unixepoch') AS at, past.job,
       past.data, past.gone
FROM superseded AS past JOIN records ON records.number = past.record
UNION ALL
SELECT type, site, key, version, datetime(last_changed, 'unixepoch'), job, data, gone_since IS NOT NULL FROM records;

CREATE VIEW page_list AS
SELECT url, datetime(fetched_at, 'unixepoch') AS fetched, status, job, spider, failure, etag, last_modified,
       archive_ref, parser, lower(hex(fingerprint)) AS fingerprint
FROM pages;

CREATE VIEW visit_list AS
SELECT url, datetime(fetched_at, 'unixepoch') AS fetched, status, job, spider, failure, archive_ref FROM visits;
