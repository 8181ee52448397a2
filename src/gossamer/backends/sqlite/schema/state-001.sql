-- The state of a project in SQLite: the frontier, jobs, schedules, and what all workers share. Times are seconds since
-- the epoch (UTC); the views show them readably.
--
-- A lease reads `queues` only where work is available: ready ones by (priority, turn), sleeping ones by wake_at.

-- Jobs: one row per run of a spider, with its account -----------------------------------------------------------------

CREATE TABLE jobs (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    state       TEXT NOT NULL,               -- running, finished, cancelled
    paused      INTEGER NOT NULL DEFAULT 0,  -- nothing of a paused job is handed out
    sealed      INTEGER NOT NULL DEFAULT 0,  -- all seeds are in
    ending      TEXT NOT NULL DEFAULT '',
    outcome     TEXT NOT NULL DEFAULT '',    -- JSON; '': what the ending implies
    created_at  REAL NOT NULL,
    finished_at REAL,
    terms       TEXT NOT NULL,               -- JSON, see JobTerms
    start       TEXT NOT NULL DEFAULT '',    -- a digest of the seeds of its spider
    discovered  INTEGER NOT NULL DEFAULT 0,
    duplicates  INTEGER NOT NULL DEFAULT 0,
    queued      INTEGER NOT NULL DEFAULT 0,
    waiting     INTEGER NOT NULL DEFAULT 0,
    postponed   INTEGER NOT NULL DEFAULT 0,  -- of them, links for which the queue has no room yet
    leased      INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    unchanged   INTEGER NOT NULL DEFAULT 0,
    dropped     INTEGER NOT NULL DEFAULT 0,
    drops       TEXT NOT NULL DEFAULT '{}',  -- JSON: reason -> number of dropped URLs
    dead        INTEGER NOT NULL DEFAULT 0,
    retries     INTEGER NOT NULL DEFAULT 0,
    redirected  INTEGER NOT NULL DEFAULT 0,  -- part of done: answered with a redirect only
    stats       TEXT NOT NULL DEFAULT '{}'   -- JSON: the spider's own counters (Spider.stats)
) STRICT;

CREATE INDEX jobs_running ON jobs (name) WHERE state = 'running';
CREATE INDEX jobs_named ON jobs (name, number);
-- By the key that started them over HTTP, '' for the others: lists of jobs use it instead of filtering all jobs.
CREATE INDEX jobs_owned ON jobs (coalesce(json_extract(terms, '$.owner'), ''), number);
-- Replaced and cancelled jobs whose open pages are not dropped yet.
CREATE INDEX jobs_dropping ON jobs (ending) WHERE ending IN ('replaced', 'cancelled') AND queued + waiting > 0;

-- Numbers of deleted jobs whose pages are not deleted yet. Their rows in `jobs` are deleted at once, pages in portions:
-- one transaction for all of them would block every other worker.
CREATE TABLE forgetting (job INTEGER PRIMARY KEY) STRICT;

-- Which worker reads the seeds of a job from their source, and what was wrong with it.
CREATE TABLE seed_leases (
    job     TEXT PRIMARY KEY,                -- its id; or @ and a site, while a source has the site to itself
    worker  TEXT NOT NULL DEFAULT '',        -- '' if none reads
    until   REAL NOT NULL DEFAULT 0,         -- unless it is renewed
    length  REAL NOT NULL DEFAULT 0,         -- seconds
    trouble TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- Sites found in the source: links may lead there.
CREATE TABLE seed_sites (
    job  TEXT NOT NULL,
    site TEXT NOT NULL,
    PRIMARY KEY (job, site)
) STRICT, WITHOUT ROWID;

-- Sites: politeness, one row per registrable domain, shared by all jobs -----------------------------------------------

CREATE TABLE sites (
    number           INTEGER PRIMARY KEY,
    name             TEXT NOT NULL UNIQUE,
    next_at          REAL NOT NULL DEFAULT 0,     -- the bucket: when it is full again (theoretical arrival time)
    rest_until       REAL NOT NULL DEFAULT 0,     -- no request before, whatever the bucket says
    asked_interval   REAL,                        -- the site's own crawl-delay, seconds
    learned_interval REAL,                        -- seconds between two requests, as of refused_at
    refused_at       REAL NOT NULL DEFAULT 0,     -- when it last answered that requests are too frequent
    between_refusals REAL NOT NULL DEFAULT 0,     -- requests, smoothed; 0: unknown (frontier/learned_pace.py)
    in_flight        INTEGER NOT NULL DEFAULT 0,
    holder           TEXT,                        -- the one worker that turns are owed to, if the site has a rate
    kept_until       REAL NOT NULL DEFAULT 0,     -- until then the next turn is kept for a page in progress
    starved          TEXT,                        -- a worker that waits in vain for a slot of it: see leasing.py
    starved_at       REAL NOT NULL DEFAULT 0,     -- when it last noted so
    -- Jobs take turns at a site that only one of them can have at a time (frontier/turns.py).
    latest           INTEGER,                     -- the job that was served last
    wanted           INTEGER,                     -- of those that were refused since, the one served longest ago,
    wanted_turn      REAL,                        -- when that was,
    wanted_priority  INTEGER NOT NULL DEFAULT 0,  -- and its priority
    wanted_since     REAL,                        -- since when a job is kept waiting
    offered_at       REAL,                        -- since when the wanting job could have the site
    claim            INTEGER,                     -- the job that comes back to it
    claim_priority   INTEGER NOT NULL DEFAULT 0,
    claim_until      REAL NOT NULL DEFAULT 0,
    claim_run        INTEGER NOT NULL DEFAULT 0,
    -- A site that cannot be reached rests as a whole (frontier/away.py).
    away_host        TEXT NOT NULL DEFAULT '',    -- '' also when several hosts failed in a row
    away_reason      TEXT NOT NULL DEFAULT '',    -- of the last failure
    away_since       REAL NOT NULL DEFAULT 0,
    strikes          INTEGER NOT NULL DEFAULT 0,  -- failures in a row; 0: the site is reachable
    given_up_until   REAL NOT NULL DEFAULT 0,
    answered_at      REAL NOT NULL DEFAULT 0      -- when a page was last settled; 0: never
) STRICT;

-- A job's own rate at a site (frontier/politeness.py).
CREATE TABLE job_paces (
    job      INTEGER NOT NULL,
    site     INTEGER NOT NULL,
    next_at  REAL NOT NULL,                  -- the job's own bucket at the site: when it is full again
    interval REAL NOT NULL,                  -- of the last grant, in case its worker is lost
    PRIMARY KEY (job, site)
) STRICT, WITHOUT ROWID;

-- Addresses that many sites share have a pace.
CREATE TABLE address_paces (
    address TEXT PRIMARY KEY,
    next_at REAL NOT NULL                    -- when the next request to it may leave; a past one means nothing
) STRICT, WITHOUT ROWID;

CREATE INDEX address_paces_over ON address_paces (next_at);

-- robots.txt as it was last read.
CREATE TABLE robots (
    origin     TEXT PRIMARY KEY,
    status     INTEGER NOT NULL,
    body       TEXT NOT NULL,
    fetched_at REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT;

-- The frontier --------------------------------------------------------------------------------------------------------

-- Every discovered URL of a job, in exactly one state. Most rows of a large file are pages that are done: values that
-- few rows have are in `extras` or in a separate table, and texts that many rows share are stored once, in `texts`.
-- `state` is a letter: q queued, w waiting, l leased, d done, u unchanged, o dropped, x dead (queue_rows.py).
CREATE TABLE urls (
    number       INTEGER PRIMARY KEY,
    job          INTEGER NOT NULL,
    site         INTEGER NOT NULL,
    fingerprint  BLOB NOT NULL,
    state        TEXT NOT NULL,
    origin       INTEGER NOT NULL,           -- in `texts`: the part before `path`
    path         TEXT NOT NULL,
    reason       TEXT NOT NULL DEFAULT '',
    message      TEXT NOT NULL DEFAULT '',
    priority     INTEGER NOT NULL,
    depth        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0, -- tries used up
    max_attempts INTEGER NOT NULL,
    deliveries   INTEGER NOT NULL DEFAULT 0, -- deliveries without a response
    token        INTEGER NOT NULL DEFAULT 0, -- of the latest lease
    kind         INTEGER NOT NULL,           -- in `texts`
    fetcher      TEXT,                       -- the lane
    found_on     INTEGER,
    created_at   REAL NOT NULL,
    changed_at   REAL NOT NULL,              -- of a queued row also its position among rows of equal priority
    due_at       REAL,
    extras       TEXT                        -- JSON: what few tasks have (Extras in queue_rows.py)
) STRICT;

-- The site comes first: links of one page share it, so that they touch few pages of this index. It holds four bytes of
-- a fingerprint; a reader that finds a row by it compares the whole.
CREATE INDEX urls_identity ON urls (job, site, substr(fingerprint, 1, 4));
CREATE INDEX urls_queued ON urls (job, site, fetcher, priority DESC, changed_at) WHERE state = 'q';
CREATE INDEX urls_waiting ON urls (job, due_at) WHERE state = 'w';
-- Why the pages of a site wait, and how many, without reading their rows.
CREATE INDEX urls_waiting_sites ON urls (job, site, reason) WHERE state = 'w';
CREATE INDEX urls_dead ON urls (job, changed_at) WHERE state = 'x';

-- Texts that many rows of `urls` share: beginnings of addresses (https://shop.example), names of callbacks.
CREATE TABLE texts (
    number INTEGER PRIMARY KEY,
    text   TEXT NOT NULL UNIQUE
) STRICT;

-- The version of the fingerprints in this file (FINGERPRINT_VERSION in model/url.py), in one row.
CREATE TABLE fingerprints (version INTEGER NOT NULL) STRICT;

-- One row for each leased URL, so that leasing and settling a URL does not change the length of its row.
CREATE TABLE leases (
    url    INTEGER PRIMARY KEY,              -- its number
    token  INTEGER NOT NULL,                 -- fences the lease
    until  REAL NOT NULL,
    worker TEXT NOT NULL,
    turn   INTEGER NOT NULL DEFAULT 1        -- the number of its turn at the site; negative: its request has left
) STRICT;

CREATE INDEX leases_until ON leases (until);

-- One row per job, site and lane: is there work, may it be handed out, when. A task waits in the lane that its
-- `fetcher` names; without one the lane is ''. So a worker never meets tasks that it does not serve.
CREATE TABLE queues (
    job      INTEGER NOT NULL,
    site     INTEGER NOT NULL,
    lane     TEXT NOT NULL,
    state    TEXT NOT NULL,                  -- ready, empty, sleeping (until wake_at), full (until one settles),
                                             -- held (for one worker; for the others until its last one settles)
    priority INTEGER NOT NULL DEFAULT 0,     -- of its best task
    turn     INTEGER NOT NULL DEFAULT 0,     -- the one served longest ago goes first
    wake_at  REAL,
    held_for TEXT,
    refused  INTEGER NOT NULL DEFAULT 0,     -- a worker asked since it was last served, and could not have it
    taken    INTEGER NOT NULL DEFAULT 0,     -- URLs ever admitted, for the site's budget: all lanes together
    PRIMARY KEY (job, site, lane)
) STRICT, WITHOUT ROWID;

CREATE INDEX queues_ready ON queues (job, lane, priority DESC, turn) WHERE state = 'ready';
CREATE INDEX queues_sleeping ON queues (job, wake_at) WHERE state = 'sleeping';
CREATE INDEX queues_slotless ON queues (site) WHERE state IN ('full', 'held');
CREATE INDEX queues_held ON queues (held_for) WHERE state = 'held';

-- How many URLs of one path shape a job has taken (trap budget).
CREATE TABLE shapes (
    job   INTEGER NOT NULL,
    site  INTEGER NOT NULL,
    shape TEXT NOT NULL,
    taken INTEGER NOT NULL,
    PRIMARY KEY (job, site, shape)
) STRICT, WITHOUT ROWID;

-- Rare events in a URL's story: a worker died, a dead letter was replayed.
CREATE TABLE incidents (
    url  INTEGER NOT NULL REFERENCES urls (number),
    at   REAL NOT NULL,
    what TEXT NOT NULL
) STRICT;

CREATE INDEX incidents_url ON incidents (url);

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

-- Workers: processes that work on the project, and their last heartbeat ------------------------------------------------

CREATE TABLE workers (
    name       TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT NOT NULL,
    started_at REAL NOT NULL,
    seen_at    REAL NOT NULL,
    job        TEXT NOT NULL,
    state      TEXT NOT NULL,                -- working, idle, draining
    in_flight  INTEGER NOT NULL,
    done       INTEGER NOT NULL,
    cpu        REAL NOT NULL,                -- share of one core
    memory     INTEGER NOT NULL,             -- bytes
    asked      TEXT NOT NULL DEFAULT '',     -- what an operator wants: drain, restart
    pace       REAL NOT NULL DEFAULT 0,      -- pages a second, in the last minute
    busy       REAL NOT NULL DEFAULT 0,      -- share of its capacity in use
    serves     TEXT NOT NULL DEFAULT '',     -- routes or kinds, separated by commas; '': all
    frozen     TEXT NOT NULL DEFAULT '',     -- workers of its machine that live and send no heartbeat
    instead_of TEXT NOT NULL DEFAULT '',     -- the worker whose place it took
    paces      TEXT NOT NULL DEFAULT '{}'    -- JSON: job -> pages a second
) STRICT;

-- Routes and proxies --------------------------------------------------------------------------------------------------

-- The learned route of each site that blocks: the route at which its pages start.
CREATE TABLE learned_routes (
    site       TEXT NOT NULL,
    pattern    TEXT NOT NULL DEFAULT '',     -- of its pages' addresses (routing/site_memory.py); '': all of the site
    route      TEXT NOT NULL,
    since      REAL NOT NULL,
    reason     TEXT NOT NULL,                -- the block that led here
    blocks     INTEGER NOT NULL,
    recheck_at REAL NOT NULL,                -- when a cheaper route may be tried again
    patience   REAL NOT NULL,                -- seconds to wait after that, if it fails again
    PRIMARY KEY (site, pattern)
) STRICT, WITHOUT ROWID;

CREATE INDEX learned_routes_latest ON learned_routes (since DESC, site, pattern);

-- Credits spent by a job, on a day, on a site and day.
CREATE TABLE budgets (
    name  TEXT PRIMARY KEY,                  -- job/..., day/2027-01-31, domain/2027-01-31/shop.example
    spent INTEGER NOT NULL                   -- billionths of a token
) STRICT, WITHOUT ROWID;

-- The health of each proxy of a proxy pool, and until when it rests.
CREATE TABLE proxies (
    pool       TEXT NOT NULL,
    name       TEXT NOT NULL,                -- the address without credentials
    tries      INTEGER NOT NULL,
    successes  INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    bans       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    credits     REAL NOT NULL,
    latency    REAL,                         -- seconds, a mean in which older tries count less
    score      REAL NOT NULL,                -- share of successes, in the same way
    run        INTEGER NOT NULL,             -- successes in a row; failures in a row are negative
    strikes    INTEGER NOT NULL,             -- rests that were not made good yet
    rest_until REAL NOT NULL,
    changed_at REAL NOT NULL,
    last_error TEXT NOT NULL,
    PRIMARY KEY (pool, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX proxies_changed ON proxies (pool, changed_at);

-- How proxies fare at the sites that have refused them: a proxy that one site banned rests for that site alone.
CREATE TABLE proxy_sites (
    pool       TEXT NOT NULL,
    name       TEXT NOT NULL,                -- the proxy, as in proxies
    site       TEXT NOT NULL,
    run        INTEGER NOT NULL,             -- successes in a row; refusals in a row are negative
    strikes    INTEGER NOT NULL,             -- rests that were not made good yet
    rest_until REAL NOT NULL,                -- 0: it never had to rest for this site
    changed_at REAL NOT NULL,
    PRIMARY KEY (pool, site, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX proxy_sites_changed ON proxy_sites (pool, changed_at);

-- Proxies that a page has tried in vain, for an hour.
CREATE TABLE proxy_uses (
    fingerprint BLOB NOT NULL,
    name        TEXT NOT NULL,
    forget_at   REAL NOT NULL,
    PRIMARY KEY (fingerprint, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX proxy_uses_old ON proxy_uses (forget_at);

-- Lasting sessions of gateways that were banned, and which of their ids is now in use.
CREATE TABLE proxy_sessions (
    pool       TEXT NOT NULL,
    session    TEXT NOT NULL,                -- site/... or key/...
    generation INTEGER NOT NULL,
    changed_at REAL NOT NULL,
    PRIMARY KEY (pool, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX proxy_sessions_changed ON proxy_sessions (pool, changed_at);

-- Schedules -----------------------------------------------------------------------------------------------------------

-- What is scraped, when, and the progress of each. `version` changes with every write, even after a schedule was
-- removed and written again.
CREATE TABLE schedules (
    name     TEXT PRIMARY KEY,
    version  INTEGER NOT NULL,
    progress TEXT NOT NULL                   -- JSON of ScheduleProgress
) STRICT, WITHOUT ROWID;

-- One row: which scheduler leads, and how often schedules were changed. Only the leader decides about ticks: `token`
-- grows with every change of leader, and writes of an older leader are refused.
CREATE TABLE scheduling (
    only    INTEGER PRIMARY KEY CHECK (only = 1),
    leader  TEXT NOT NULL DEFAULT '',        -- '' after it resigned
    token   INTEGER NOT NULL DEFAULT 0,
    until   REAL NOT NULL DEFAULT 0,
    changes INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO scheduling (only) VALUES (1);

CREATE VIEW schedule_list AS
SELECT name, json_extract(progress, '$.schedule.spider') AS spider,
       json_extract(progress, '$.schedule.trigger') AS trigger, json_extract(progress, '$.paused') AS paused,
       json_extract(progress, '$.runs') AS runs, json_extract(progress, '$.last_job') AS last_job,
       datetime(json_extract(progress, '$.last_due'), 'unixepoch') AS last_due,
       json_extract(progress, '$.trouble') AS trouble
FROM schedules;

-- The shelf (model/shelf.py): small, cold state of all kinds: keys, callbacks, alerts, sessions, notes -------------------

CREATE TABLE shelf (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,        -- JSON
    stamp BLOB NOT NULL,        -- random, new with every write
    at REAL,                    -- the time by which the row is listed
    until REAL,                 -- when it expires
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX shelf_by_time ON shelf (kind, at, key) WHERE at IS NOT NULL;
CREATE INDEX shelf_by_end ON shelf (kind, until) WHERE until IS NOT NULL;
