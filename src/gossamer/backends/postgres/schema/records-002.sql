-- Records that are gone, versions that jobs saw, shapes of items, and the quality of both records and pages.
--
--   records     gone_since: not found since then. schema: the shape it was made with.
--               revision: the transaction that changed it last, so that a cursor selects what changed after it. A
--               cursor is the oldest transaction that was still open: no later change can be before it
--   superseded  gone: it was not found at that time. A record that is gone keeps its last data
--   sightings   version: the one that the job saw last; 0: unknown, or not kept
--   pages       spider, failure: the spider that parsed it, and why it yielded nothing ('' if all is well); as in visits
--               content, rhythm: a hash of what it yielded last, and how often that has changed
--   schemas     every shape that items of a type have had
--   quality     the counts of the checks, by day, spider, type, field and rule; rule '' counts all
--   store       the id of this store; a cursor is valid only in it

ALTER TABLE records ADD COLUMN gone_since double precision;
ALTER TABLE records ADD COLUMN schema text NOT NULL DEFAULT '';
ALTER TABLE records ADD COLUMN revision xid8 NOT NULL DEFAULT '0';      -- a constant: the old rows are not rewritten
ALTER TABLE records ALTER COLUMN revision SET DEFAULT pg_current_xact_id();

CREATE INDEX records_revision ON records (revision);
CREATE INDEX records_key ON records USING hash (key);                   -- a key may be longer than an ordered entry

ALTER TABLE superseded ADD COLUMN gone boolean NOT NULL DEFAULT false;
ALTER TABLE superseded ADD COLUMN schema text NOT NULL DEFAULT '';

ALTER TABLE sightings ADD COLUMN version integer NOT NULL DEFAULT 0;

ALTER TABLE pages ADD COLUMN spider text NOT NULL DEFAULT '';
ALTER TABLE pages ADD COLUMN failure text NOT NULL DEFAULT '';
ALTER TABLE pages ADD COLUMN content bytea NOT NULL DEFAULT '';
ALTER TABLE pages ADD COLUMN rhythm text NOT NULL DEFAULT '';
ALTER TABLE visits ADD COLUMN spider text NOT NULL DEFAULT '';
ALTER TABLE visits ADD COLUMN failure text NOT NULL DEFAULT '';

-- Whose pages the old ones are: a job is the work of one spider, and its records name it.
UPDATE pages SET spider = jobs.spider
FROM (SELECT job, min(spider) AS spider FROM records GROUP BY job HAVING min(spider) = max(spider)) AS jobs
WHERE jobs.job = pages.job;

UPDATE visits SET spider = jobs.spider
FROM (SELECT job, min(spider) AS spider FROM records GROUP BY job HAVING min(spider) = max(spider)) AS jobs
WHERE jobs.job = visits.job;

-- Found by hashes of their texts, like records: the name of a field may be longer than an index entry.
CREATE TABLE schemas (
    identity     bytea PRIMARY KEY,          -- of type and id
    type         text NOT NULL,
    id           text NOT NULL,              -- a hash of the definition
    definition   text NOT NULL,              -- JSON object
    first_stored double precision NOT NULL
);

CREATE TABLE quality (
    identity bytea PRIMARY KEY,              -- of the next five
    day      text NOT NULL,                  -- UTC, 2027-01-31
    spider   text NOT NULL,
    type     text NOT NULL,
    field    text NOT NULL,
    rule     text NOT NULL,
    checked  bigint NOT NULL,
    filled   bigint NOT NULL,
    faulty   bigint NOT NULL
) WITH (fillfactor = 50);                    -- few rows, written all the time

CREATE TABLE store (id text NOT NULL);
INSERT INTO store (id) VALUES (left(replace(gen_random_uuid()::text, '-', ''), 12));
