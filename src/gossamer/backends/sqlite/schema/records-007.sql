-- Attempts and visits without what their page already says.
--
-- Most pages are tried and visited once, under one address: their url, the reference to the raw page and its hash were
-- in three tables. Rows that say the same as `pages` now have an empty url, and the views fill it in. When a page
-- changes its address or its copy, rows that relied on it first get their own (page_log.py). The names of workers,
-- which are part of the key of an attempt and of its index, are stored once. Rows of earlier versions stay as they are.

CREATE TABLE attempt_workers (
    id   TEXT PRIMARY KEY,                  -- '#1', '#2' ...: what `attempt_rows` has as their worker
    name TEXT NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

DROP VIEW attempt_list;
DROP VIEW visit_list;
ALTER TABLE attempts RENAME TO attempt_rows;
ALTER TABLE visits RENAME TO visit_rows;

CREATE VIEW attempts AS
SELECT kept.page, kept.at, kept.job, coalesce(attempt_workers.name, kept.worker) AS worker,
       iif(kept.url = '', pages.url, kept.url) AS url, kept.site, kept.attempt, kept.outcome, kept.route, kept.proxy,
       kept.status, kept.bytes, kept.latency, kept.cost, kept.reason, kept.error, kept.worker AS worker_id
FROM attempt_rows AS kept LEFT JOIN pages ON pages.number = kept.page
LEFT JOIN attempt_workers ON attempt_workers.id = kept.worker;

CREATE VIEW visits AS
SELECT kept.page, kept.fetched_at, iif(kept.url = '', pages.url, kept.url) AS url, kept.job, kept.status,
       iif(kept.url = '', pages.archive_ref, kept.archive_ref) AS archive_ref,
       iif(kept.url = '', pages.body_hash, kept.body_hash) AS body_hash, kept.spider, kept.failure
FROM visit_rows AS kept LEFT JOIN pages ON pages.number = kept.page;

CREATE VIEW attempt_list AS
SELECT strftime('%Y-%m-%d %H:%M:%f', at, 'unixepoch') AS at, job, url, site, worker, attempt, outcome, status,
       route, proxy, bytes, round(latency * 1000, 1) AS latency_ms, cost, reason, error
FROM attempts;

CREATE VIEW visit_list AS
SELECT url, datetime(fetched_at, 'unixepoch') AS fetched, status, job, spider, failure, archive_ref FROM visits;
