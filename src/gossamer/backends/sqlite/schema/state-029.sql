-- Smaller URL rows. Most rows of a large file are pages that are done: values that few rows have are in one column or a
-- separate table, texts that many rows share are stored once, and the index of identities holds four bytes of a
-- fingerprint instead of sixteen.
--
--   texts   texts that many rows of `urls` share: beginnings of addresses (https://shop.example), names of callbacks
--   leases  one row for each leased URL, so that leasing and settling a URL does not change the length of its row
--   urls    `state` is a letter: q queued, w waiting, l leased, d done, u unchanged, o dropped, x dead (queue_rows.py).
--           `changed_at` of a queued row is also its position among rows of equal priority
--
-- The view `url_list` shows a URL with its whole address and the name of its state.

DROP VIEW dead_letters;
DROP VIEW url_list;

CREATE TABLE texts (
    number INTEGER PRIMARY KEY,
    text   TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE leases (
    url    INTEGER PRIMARY KEY,                -- its number
    token  INTEGER NOT NULL,                   -- fences the lease
    until  REAL NOT NULL,
    worker TEXT NOT NULL
) STRICT;

CREATE INDEX leases_until ON leases (until);

CREATE TABLE urls_by_letter (
    number       INTEGER PRIMARY KEY,
    job          INTEGER NOT NULL,
    site         INTEGER NOT NULL,
    fingerprint  BLOB NOT NULL,
    state        TEXT NOT NULL,
    origin       INTEGER NOT NULL,             -- in `texts`: the part before `path`
    path         TEXT NOT NULL,
    reason       TEXT NOT NULL DEFAULT '',
    message      TEXT NOT NULL DEFAULT '',
    priority     INTEGER NOT NULL,
    depth        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,   -- tries used up
    max_attempts INTEGER NOT NULL,
    deliveries   INTEGER NOT NULL DEFAULT 0,   -- deliveries without a response
    token        INTEGER NOT NULL DEFAULT 0,   -- of the latest lease
    kind         INTEGER NOT NULL,             -- in `texts`
    fetcher      TEXT,                         -- the lane
    found_on     INTEGER,
    created_at   REAL NOT NULL,
    changed_at   REAL NOT NULL,
    due_at       REAL,
    extras       TEXT                          -- JSON: what few tasks have (Extras in queue_rows.py)
) STRICT;

INSERT INTO texts (text)
SELECT kind FROM urls
UNION SELECT iif(url LIKE 'http%' AND instr(substr(url, 9), '/') BETWEEN 1 AND 300,
    substr(url, 1, instr(substr(url, 9), '/') + 7), '') FROM urls;

INSERT INTO urls_by_letter
SELECT urls.number, job, site, fingerprint,
    CASE state WHEN 'queued' THEN 'q' WHEN 'waiting' THEN 'w' WHEN 'leased' THEN 'l' WHEN 'done' THEN 'd'
        WHEN 'unchanged' THEN 'u' WHEN 'dropped' THEN 'o' ELSE 'x' END,
    start.number, substr(url, length(start.text) + 1), reason, message, priority, depth, attempts, max_attempts,
    deliveries, token, name.number, fetcher, found_on, created_at,
    iif(state = 'queued', turn / 1000000.0, changed_at), due_at,
    iif(data = '' AND redirects = '' AND proxy_pool IS NULL AND country IS NULL AND how = '', NULL,
        json_object('data', data, 'redirects', json(iif(redirects = '', '[]', redirects)), 'proxy_pool', proxy_pool,
            'country', country, 'how', how))
FROM urls
JOIN texts AS start ON start.text = iif(url LIKE 'http%' AND instr(substr(url, 9), '/') BETWEEN 1 AND 300,
    substr(url, 1, instr(substr(url, 9), '/') + 7), '')
JOIN texts AS name ON name.text = kind
ORDER BY urls.number;

INSERT INTO leases
SELECT number, token, coalesce(lease_until, 0), coalesce(worker, '') FROM urls WHERE state = 'leased';

DROP TABLE urls;
ALTER TABLE urls_by_letter RENAME TO urls;

-- The site comes first: links of one page share it, so that they touch few pages of this index. A reader that finds a
-- row by it compares the whole fingerprint.
CREATE INDEX urls_identity ON urls (job, site, substr(fingerprint, 1, 4));
CREATE INDEX urls_queued ON urls (job, site, fetcher, priority DESC, changed_at) WHERE state = 'q';
CREATE INDEX urls_waiting ON urls (job, due_at) WHERE state = 'w';
CREATE INDEX urls_waiting_sites ON urls (job, site, reason) WHERE state = 'w';
CREATE INDEX urls_dead ON urls (job, changed_at) WHERE state = 'x';

CREATE VIEW url_list AS
SELECT jobs.id AS job, start.text || urls.path AS url,
    CASE urls.state WHEN 'q' THEN 'queued' WHEN 'w' THEN 'waiting' WHEN 'l' THEN 'leased' WHEN 'd' THEN 'done'
        WHEN 'u' THEN 'unchanged' WHEN 'o' THEN 'dropped' ELSE 'dead' END AS state,
    urls.reason, urls.message, sites.name AS site, name.text AS kind, urls.depth, urls.priority, urls.attempts,
    datetime(urls.created_at, 'unixepoch') AS discovered, datetime(urls.changed_at, 'unixepoch') AS changed,
    parent_start.text || parent.path AS found_on
FROM urls
JOIN jobs ON jobs.number = urls.job
JOIN sites ON sites.number = urls.site
JOIN texts AS start ON start.number = urls.origin
JOIN texts AS name ON name.number = urls.kind
LEFT JOIN urls AS parent ON parent.number = urls.found_on
LEFT JOIN texts AS parent_start ON parent_start.number = parent.origin;

CREATE VIEW dead_letters AS SELECT * FROM url_list WHERE state = 'dead';
