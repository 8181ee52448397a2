-- The views of the SQLite file, with the same names and columns, for people and programs that read: times are
-- timestamps in UTC instead of seconds since the epoch. See docs/data.md.

CREATE VIEW record_list AS
SELECT type, site, key, url, job, spider, data, version, to_timestamp(first_seen) AT TIME ZONE 'UTC' AS first_seen,
       to_timestamp(last_changed) AT TIME ZONE 'UTC' AS last_changed,
       to_timestamp(last_checked) AT TIME ZONE 'UTC' AS last_checked,
       to_timestamp(gone_since) AT TIME ZONE 'UTC' AS gone_since
FROM records;

CREATE VIEW record_history AS
SELECT records.type, records.site, records.key, past.version, to_timestamp(past.at) AT TIME ZONE 'UTC' AS at, past.job,
       past.data, past.gone
FROM superseded AS past JOIN records ON records.number = past.record
UNION ALL
SELECT type, site, key, version, to_timestamp(last_changed) AT TIME ZONE 'UTC', job, data, gone_since IS NOT NULL
FROM records;

CREATE VIEW attempt_list AS
SELECT to_timestamp(at) AT TIME ZONE 'UTC' AS at, job, url, site, worker, attempt, outcome, status, route, proxy, bytes,
       round((latency * 1000)::numeric, 1) AS latency_ms, cost, reason, error
FROM attempts;

CREATE VIEW page_list AS
SELECT url, to_timestamp(fetched_at) AT TIME ZONE 'UTC' AS fetched, status, job, spider, failure, etag, last_modified,
       archive_ref, parser, encode(fingerprint, 'hex') AS fingerprint
FROM pages;

CREATE VIEW visit_list AS
SELECT url, to_timestamp(fetched_at) AT TIME ZONE 'UTC' AS fetched, status, job, spider, failure, archive_ref
FROM visits;
