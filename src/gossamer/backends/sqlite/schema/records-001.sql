-- Records, attempts and page facts in SQLite. Times are seconds since the epoch (UTC) at which something was scraped,
-- tried or fetched; the views at the end show them readably. The tables of PostgreSQL have the same names and columns.
--
-- Fingerprints are random: each new row under a fingerprint dirties a separate block. Only `pages` is filed that way;
-- the other tables are filed under its number, which grows, so that a batch of attempts and visits fills few blocks
-- (measured: half the cost).


-- Every item as it looks now. A record that is gone keeps its last data.
CREATE TABLE records (
    number       INTEGER PRIMARY KEY,        -- order of first storage
    type         TEXT NOT NULL,
    site         TEXT NOT NULL,
    key          TEXT NOT NULL,
    url          TEXT NOT NULL,
    job          TEXT NOT NULL,              -- that last changed it
    spider       TEXT NOT NULL,
    data         TEXT NOT NULL,              -- JSON object
    content_hash BLOB NOT NULL,
    first_seen   REAL NOT NULL,
    last_changed REAL NOT NULL,              -- when the present version was scraped first
    last_checked REAL NOT NULL,              -- the newest scrape; an older one changes nothing
    version      INTEGER NOT NULL,
    page         INTEGER NOT NULL,           -- the page that gave it last: when that is unchanged, so is the record
    gone_since   REAL,                       -- not found since then
    schema       TEXT NOT NULL,              -- the shape it was made with
    revision     INTEGER NOT NULL,           -- grows with every commit: a cursor selects what changed after it
    UNIQUE (type, site, key)
) STRICT;

CREATE INDEX records_page ON records (page);
CREATE INDEX records_revision ON records (revision);
CREATE INDEX records_gone ON records (job, number) WHERE gone_since IS NOT NULL;  -- what a job marked as gone

-- How records looked before. The present version is only in `records` and copied when it is replaced: a first crawl, in
-- which nothing is replaced yet, writes each item once.
CREATE TABLE superseded (
    record  INTEGER NOT NULL REFERENCES records (number),
    version INTEGER NOT NULL,
    at      REAL NOT NULL,
    job     TEXT NOT NULL,
    data    TEXT NOT NULL,
    gone    INTEGER NOT NULL,                -- it was not found at that time
    schema  TEXT NOT NULL,
    PRIMARY KEY (record, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX superseded_gone ON superseded (job, record) WHERE gone;

-- Which job saw which record, changed or not: the version that it saw last (0: unknown, or not kept), and the page from
-- which it first had the record, what became of that item (store/item_states.py: SEEN_STATES), and the start of its
-- content hash; 0 and x'' if unknown.
CREATE TABLE sightings (
    job     TEXT NOT NULL,
    record  INTEGER NOT NULL REFERENCES records (number),
    version INTEGER NOT NULL,
    page    INTEGER NOT NULL DEFAULT 0,
    state   INTEGER NOT NULL DEFAULT 0,
    content BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (job, record)
) STRICT, WITHOUT ROWID;

-- Spiders that saw a record which another spider wrote last; `records.spider` is not repeated here.
CREATE TABLE seen_by (
    spider TEXT NOT NULL,
    record INTEGER NOT NULL REFERENCES records (number),
    PRIMARY KEY (spider, record)
) STRICT, WITHOUT ROWID;

-- Every shape that items of a type have had.
CREATE TABLE schemas (
    type         TEXT NOT NULL,
    id           TEXT NOT NULL,              -- a hash of the definition
    definition   TEXT NOT NULL,              -- JSON object
    first_stored REAL NOT NULL,
    PRIMARY KEY (type, id)
) STRICT, WITHOUT ROWID;

-- Every URL that was ever tried, with the newest facts for its next visit.
CREATE TABLE pages (
    number        INTEGER PRIMARY KEY,
    fingerprint   BLOB NOT NULL UNIQUE,
    url           TEXT NOT NULL,
    job           TEXT NOT NULL,
    fetched_at    REAL,                      -- NULL: tried, but never fetched
    status        INTEGER,
    etag          TEXT NOT NULL,
    last_modified TEXT NOT NULL,
    archive_ref   TEXT NOT NULL,
    body_hash     BLOB NOT NULL,
    parser        TEXT NOT NULL,
    links         BLOB NOT NULL,
    spider        TEXT NOT NULL,             -- that parsed it
    failure       TEXT NOT NULL,             -- why it yielded nothing; '' if all is well
    content       BLOB NOT NULL,             -- a hash of what it yielded last
    rhythm        TEXT NOT NULL              -- how often that has changed
) STRICT;

-- The audit log: every attempt for a page. The view `attempts` fills in what is not repeated here: the url of most
-- attempts is that of their page, and then it is ''. Before a page changes its url, its attempts get their own.
CREATE TABLE attempt_rows (
    page    INTEGER NOT NULL REFERENCES pages (number),
    at      REAL NOT NULL,
    job     TEXT NOT NULL,
    worker  INTEGER NOT NULL REFERENCES attempt_workers (number),
    url     TEXT NOT NULL,
    site    TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    route   TEXT NOT NULL,
    proxy   TEXT,
    status  INTEGER,
    bytes   INTEGER NOT NULL,
    latency REAL NOT NULL,                   -- seconds
    cost    REAL NOT NULL,                   -- credits
    reason  TEXT NOT NULL,
    error   TEXT NOT NULL,
    PRIMARY KEY (page, at, job, worker)      -- the same try reported twice is one try
) STRICT, WITHOUT ROWID;

-- The log by time, newest first. A covering index: filters need not read the attempts. It grows only at its end.
CREATE INDEX attempts_at ON attempt_rows (at, site, outcome, route, reason);

CREATE TABLE attempt_workers (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- Every archived visit of a page, with the place of its raw copy. The view `visits` fills in the url, the copy and the
-- hash of those that say the same as their page, which have an empty url.
CREATE TABLE visit_rows (
    page        INTEGER NOT NULL REFERENCES pages (number),
    fetched_at  REAL NOT NULL,
    url         TEXT NOT NULL,
    job         TEXT NOT NULL,
    status      INTEGER NOT NULL,
    archive_ref TEXT NOT NULL,
    body_hash   BLOB NOT NULL,
    spider      TEXT NOT NULL,
    failure     TEXT NOT NULL,
    PRIMARY KEY (page, fetched_at)
) STRICT, WITHOUT ROWID;

-- Requests that must not be sent twice and may be out (store/contract.py, SentNotes).
CREATE TABLE sent_notes (
    job         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    owner       TEXT NOT NULL,               -- a random name of the lease that sends it
    at          REAL NOT NULL,
    PRIMARY KEY (job, fingerprint)
) STRICT, WITHOUT ROWID;

-- What was erased on request: hashes of records and pages (store/erasure.py). What was scraped until then is not stored
-- any more.
CREATE TABLE erased (
    mark  BLOB PRIMARY KEY,
    until REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- The account of a page's items in one job: of its last settlement, so that storing a page again counts nothing twice.
-- `notes` has the rest of it as JSON: src/gossamer/model/item_account.py.
CREATE TABLE item_counts (
    job       TEXT NOT NULL,
    page      INTEGER NOT NULL REFERENCES pages (number),
    at        REAL NOT NULL,
    yielded   INTEGER NOT NULL,              -- the sum of the next ten
    new       INTEGER NOT NULL,
    changed   INTEGER NOT NULL,
    back      INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    equal     INTEGER NOT NULL,
    conflict  INTEGER NOT NULL,
    held      INTEGER NOT NULL,
    dropped   INTEGER NOT NULL,
    faulty    INTEGER NOT NULL,
    lost      INTEGER NOT NULL,
    fine      INTEGER NOT NULL,              -- what the quality checks found
    flawed    INTEGER NOT NULL,
    shared    INTEGER NOT NULL,              -- of them, with a record that another spider writes as well
    parser    TEXT NOT NULL,                 -- the version of the code that yielded them
    notes     TEXT NOT NULL,
    PRIMARY KEY (job, page)
) STRICT, WITHOUT ROWID;

-- The counts of the checks; rule '' counts all.
CREATE TABLE quality (
    day     TEXT NOT NULL,                   -- UTC, 2027-01-31
    spider  TEXT NOT NULL,
    type    TEXT NOT NULL,
    field   TEXT NOT NULL,
    rule    TEXT NOT NULL,
    checked INTEGER NOT NULL,
    filled  INTEGER NOT NULL,
    faulty  INTEGER NOT NULL,
    PRIMARY KEY (day, spider, type, field, rule)
) STRICT, WITHOUT ROWID;

-- Every attempt is counted once, in its minute, in the commit that stores it: figures are JSON objects
-- (src/gossamer/model/figures.py). Sheets are minutes in which attempts are still counted; writers take turns, so they
-- share one. `figures` has minutes (for a day), ten minutes (for 30 days), and in the row with span 0 everything.
CREATE TABLE figure_sheets (
    start   INTEGER NOT NULL,                -- seconds since the epoch
    writer  TEXT NOT NULL DEFAULT '',
    figures TEXT NOT NULL,
    PRIMARY KEY (start, writer)
) STRICT, WITHOUT ROWID;

CREATE TABLE figures (
    span    INTEGER NOT NULL,                -- seconds: 60 or 600; 0: everything
    start   INTEGER NOT NULL,
    figures TEXT NOT NULL,
    PRIMARY KEY (span, start)
) STRICT, WITHOUT ROWID;

-- Which types of items have a typed view, of which name, with which columns, as JSON (store/item_views.py). Names stay.
CREATE TABLE item_views (
    type TEXT PRIMARY KEY,
    view TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The id of this store; a cursor is valid only in it. `revision` is that of the newest record that was erased: it is not
-- given again, or cursors would miss a change.
CREATE TABLE store (id TEXT NOT NULL, revision INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO store (id) VALUES (lower(hex(randomblob(6))));

CREATE VIEW attempts AS
SELECT kept.page, kept.at, kept.job, attempt_workers.name AS worker, iif(kept.url = '', pages.url, kept.url) AS url,
       kept.site, kept.attempt, kept.outcome, kept.route, kept.proxy, kept.status, kept.bytes, kept.latency, kept.cost,
       kept.reason, kept.error, kept.worker AS worker_number
FROM attempt_rows AS kept LEFT JOIN pages ON pages.number = kept.page
LEFT JOIN attempt_workers ON attempt_workers.number = kept.worker;

CREATE VIEW visits AS
SELECT kept.page, kept.fetched_at, iif(kept.url = '', pages.url, kept.url) AS url, kept.job, kept.status,
       iif(kept.url = '', pages.archive_ref, kept.archive_ref) AS archive_ref,
       iif(kept.url = '', pages.body_hash, kept.body_hash) AS body_hash, kept.spider, kept.failure
FROM visit_rows AS kept LEFT JOIN pages ON pages.number = kept.page;


-- For people and programs that read: docs/data.md ---------------------------------------------------------------------

CREATE VIEW record_list AS
SELECT type, site, key, url, job, spider, data, version,
       strftime('%Y-%m-%dT%H:%M:%fZ', first_seen, 'unixepoch') AS first_seen,
       strftime('%Y-%m-%dT%H:%M:%fZ', last_changed, 'unixepoch') AS last_changed,
       strftime('%Y-%m-%dT%H:%M:%fZ', last_checked, 'unixepoch') AS last_checked,
       strftime('%Y-%m-%dT%H:%M:%fZ', gone_since, 'unixepoch') AS gone_since
FROM records;

-- `until` is when the next version was scraped.
CREATE VIEW record_history AS
SELECT records.type, records.site, records.key, records.url, records.spider, past.version,
       strftime('%Y-%m-%dT%H:%M:%fZ', past.at, 'unixepoch') AS at,
       strftime('%Y-%m-%dT%H:%M:%fZ', coalesce((
           SELECT next.at FROM superseded AS next WHERE next.record = past.record AND next.version = past.version + 1
       ), records.last_changed), 'unixepoch') AS until,
       past.job, past.data, past.gone
FROM superseded AS past CROSS JOIN records ON records.number = past.record
UNION ALL
SELECT type, site, key, url, spider, version, strftime('%Y-%m-%dT%H:%M:%fZ', last_changed, 'unixepoch'), NULL, job,
       data, gone_since IS NOT NULL
FROM records;

-- What a version changed in the fields of its record.
CREATE VIEW record_changes AS
WITH steps AS (
    SELECT records.type, records.site, records.key, records.url, new.version, new.at, new.job,
           iif(json_valid(old.data), old.data, '{}') AS before, iif(json_valid(new.data), new.data, '{}') AS after
    FROM superseded AS old
    CROSS JOIN superseded AS new ON new.record = old.record AND new.version = old.version + 1
    CROSS JOIN records ON records.number = old.record
    UNION ALL
    SELECT new.type, new.site, new.key, new.url, new.version, new.last_changed, new.job,
           iif(json_valid(old.data), old.data, '{}'), iif(json_valid(new.data), new.data, '{}')
    FROM records AS new
    CROSS JOIN superseded AS old ON old.record = new.number AND old.version = new.version - 1
), fields AS (
    SELECT steps.*, new.key AS field, (SELECT value FROM json_each(before) AS old WHERE old.key = new.key) AS old,
           (SELECT type FROM json_each(before) AS old WHERE old.key = new.key) AS old_type,
           new.value AS new, new.type AS new_type
    FROM steps CROSS JOIN json_each(after) AS new
    UNION ALL
    SELECT steps.*, old.key, old.value, old.type, NULL, NULL FROM steps CROSS JOIN json_each(before) AS old
    WHERE NOT EXISTS (SELECT 1 FROM json_each(after) AS new WHERE new.key = old.key)
)
SELECT type, site, key, url, version, strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch') AS at, job, field, old, new FROM fields
WHERE old IS NOT new OR coalesce(old_type, 'null') <> coalesce(new_type, 'null');

CREATE VIEW attempt_list AS
SELECT strftime('%Y-%m-%dT%H:%M:%fZ', at, 'unixepoch') AS at, job, url, site, worker, attempt, outcome, status,
       route, proxy, bytes, round(latency * 1000, 1) AS latency_ms, cost, reason, error
FROM attempts;

CREATE VIEW page_list AS
SELECT url, strftime('%Y-%m-%dT%H:%M:%fZ', fetched_at, 'unixepoch') AS fetched, status, job, spider, failure, etag, last_modified,
       archive_ref, parser, lower(hex(fingerprint)) AS fingerprint
FROM pages;

CREATE VIEW visit_list AS
SELECT url, strftime('%Y-%m-%dT%H:%M:%fZ', fetched_at, 'unixepoch') AS fetched, status, job, spider, failure, archive_ref FROM visits;
