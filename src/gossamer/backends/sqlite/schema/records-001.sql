-- Records, attempts and page facts in SQLite. Times are seconds since the epoch (UTC) at which something was
-- scraped, tried or fetched; the views at the end show them readably.
--
--   records     every item as it looks now; `job` is the one that last changed it
--   superseded  how records looked before; the view record_history shows old and present versions together
--   sightings   which job saw which record, changed or not
--   pages       every URL that was ever tried, with the newest facts for its next visit
--   attempts    the audit log: every attempt for a page
--   visits      every archived visit of a page, with the place of its raw copy
--
-- Fingerprints are random: each new row under a fingerprint dirties a separate block. Only `pages` is filed that way;
-- the other tables are filed under its number, which grows, so that a batch of attempts and visits fills few blocks
-- (measured: half the cost).
-- The present version is only in `records` and copied to `superseded` when it is replaced: a first crawl, in which
-- nothing is replaced yet, writes each item once.

CREATE TABLE records (
    number       INTEGER PRIMARY KEY,       -- order of first storage
    type         TEXT NOT NULL,
    site         TEXT NOT NULL,
    key          TEXT NOT NULL,
    url          TEXT NOT NULL,
    job          TEXT NOT NULL,
    spider       TEXT NOT NULL,
    data         TEXT NOT NULL,             -- JSON object
    content_hash BLOB NOT NULL,
    first_seen   REAL NOT NULL,
    last_changed REAL NOT NULL,             -- when the present version was scraped first
    last_checked REAL NOT NULL,             -- the newest scrape; an older one changes nothing
    version      INTEGER NOT NULL,
    page         INTEGER NOT NULL,          -- the page that gave it last: when that is unchanged, so is the record
    UNIQUE (type, site, key)
) STRICT;

CREATE INDEX records_page ON records (page);

CREATE TABLE superseded (
    record  INTEGER NOT NULL REFERENCES records (number),
    version INTEGER NOT NULL,
    at      REAL NOT NULL,
    job     TEXT NOT NULL,
    data    TEXT NOT NULL,
    PRIMARY KEY (record, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE sightings (
    job    TEXT NOT NULL,
    record INTEGER NOT NULL REFERENCES records (number),
    PRIMARY KEY (job, record)
) STRICT, WITHOUT ROWID;

CREATE TABLE pages (
    number        INTEGER PRIMARY KEY,
    fingerprint   BLOB NOT NULL UNIQUE,
    url           TEXT NOT NULL,
    job           TEXT NOT NULL,
    fetched_at    REAL,                     -- NULL: tried, but never fetched
    status        INTEGER,
    etag          TEXT NOT NULL DEFAULT '',
    last_modified TEXT NOT NULL DEFAULT '',
    archive_ref   TEXT NOT NULL DEFAULT '',
    body_hash     BLOB NOT NULL DEFAULT x'',
    parser        TEXT NOT NULL DEFAULT '',
    links         BLOB NOT NULL DEFAULT x''
) STRICT;

CREATE TABLE attempts (
    page    INTEGER NOT NULL REFERENCES pages (number),
    at      REAL NOT NULL,
    job     TEXT NOT NULL,
    worker  TEXT NOT NULL,
    url     TEXT NOT NULL,
    site    TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    route   TEXT NOT NULL,
    proxy   TEXT,
    status  INTEGER,
    bytes   INTEGER NOT NULL,
    latency REAL NOT NULL,                  -- seconds
    cost    REAL NOT NULL,                  -- tokens
    reason  TEXT NOT NULL,
    error   TEXT NOT NULL,
    PRIMARY KEY (page, at, job, worker)     -- the same try reported twice is one try
) STRICT, WITHOUT ROWID;

CREATE TABLE visits (
    page        INTEGER NOT NULL REFERENCES pages (number),
    fetched_at  REAL NOT NULL,
    url         TEXT NOT NULL,
    job         TEXT NOT NULL,
    status      INTEGER NOT NULL,
    archive_ref TEXT NOT NULL,
    body_hash   BLOB NOT NULL,
    PRIMARY KEY (page, fetched_at)
) STRICT, WITHOUT ROWID;

CREATE VIEW record_list AS
SELECT type, site, key, url, job, spider, data, version, datetime(first_seen, 'unixepoch') AS first_seen,
       datetime(last_changed, 'unixepoch') AS last_changed, datetime(last_checked, 'unixepoch') AS last_checked
FROM records;

CREATE VIEW record_history AS
SELECT records.type, records.site, records.key, past.version, datetime(past.at, 'unixepoch') AS at, past.job,
       past.data
FROM superseded AS past JOIN records ON records.number = past.record
UNION ALL
SELECT type, site, key, version, datetime(last_changed, 'unixepoch'), job, data FROM records;

CREATE VIEW attempt_list AS
SELECT strftime('%Y-%m-%d %H:%M:%f', at, 'unixepoch') AS at, job, url, site, worker, attempt, outcome, status,
       route, proxy, bytes, round(latency * 1000, 1) AS latency_ms, cost, reason, error
FROM attempts;

CREATE VIEW page_list AS
SELECT url, datetime(fetched_at, 'unixepoch') AS fetched, status, job, etag, last_modified, archive_ref, parser,
       lower(hex(fingerprint)) AS fingerprint
FROM pages;

CREATE VIEW visit_list AS
SELECT url, datetime(fetched_at, 'unixepoch') AS fetched, status, job, archive_ref FROM visits;
