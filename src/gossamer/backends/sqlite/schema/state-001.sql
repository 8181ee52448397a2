-- The frontier in SQLite. Times are seconds since the epoch (UTC); the views at the end show them readably.
--
--   jobs     one row per run of a spider, with its counters
--   sites    politeness: one row per registrable domain, shared by all jobs
--   urls     every discovered URL of a job, in exactly one state
--   queues   one row per job and site: is there work, may it be handed out, when
--   shapes   how many URLs of one path shape a job has taken (trap budget)
--   incidents  rare events in a URL's story: a worker died, a letter was replayed
--   robots   robots.txt as it was last read
--   workers  processes that work on the project, and their last heartbeat
--
-- A lease reads `queues` only where work is available: ready ones by (priority, turn), sleeping ones by wake_at.

CREATE TABLE jobs (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    state       TEXT NOT NULL,               -- running, finished, cancelled
    sealed      INTEGER NOT NULL DEFAULT 0,  -- all seeds are in
    ending      TEXT NOT NULL DEFAULT '',
    created_at  REAL NOT NULL,
    finished_at REAL,
    terms       TEXT NOT NULL,               -- JSON, see JobTerms
    discovered  INTEGER NOT NULL DEFAULT 0,
    duplicates  INTEGER NOT NULL DEFAULT 0,
    queued      INTEGER NOT NULL DEFAULT 0,
    waiting     INTEGER NOT NULL DEFAULT 0,
    leased      INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    unchanged   INTEGER NOT NULL DEFAULT 0,
    dropped     INTEGER NOT NULL DEFAULT 0,
    dead        INTEGER NOT NULL DEFAULT 0,
    retries     INTEGER NOT NULL DEFAULT 0,
    redirected  INTEGER NOT NULL DEFAULT 0   -- part of done: answered with a redirect only
) STRICT;

CREATE INDEX jobs_running ON jobs (name) WHERE state = 'running';

CREATE TABLE sites (
    number         INTEGER PRIMARY KEY,
    name           TEXT NOT NULL UNIQUE,
    next_at        REAL NOT NULL DEFAULT 0,    -- the bucket: when it is full again (theoretical arrival time)
    rest_until     REAL NOT NULL DEFAULT 0,    -- no request before, whatever the bucket says
    asked_interval REAL,                       -- the site's own crawl-delay, seconds
    in_flight      INTEGER NOT NULL DEFAULT 0,
    holder         TEXT                        -- the one worker that paces this site just now
) STRICT;

CREATE TABLE urls (
    number       INTEGER PRIMARY KEY,
    job          INTEGER NOT NULL REFERENCES jobs (number),
    site         INTEGER NOT NULL REFERENCES sites (number),
    state        TEXT NOT NULL,
    reason       TEXT NOT NULL DEFAULT '',
    priority     INTEGER NOT NULL,
    turn         INTEGER NOT NULL,             -- order among equal priorities
    depth        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,   -- tries used up
    deliveries   INTEGER NOT NULL DEFAULT 0,   -- times handed out without an answer
    token        INTEGER NOT NULL DEFAULT 0,   -- fences the lease
    lease_until  REAL,
    due_at       REAL,
    worker       TEXT,
    fingerprint  BLOB NOT NULL,
    url          TEXT NOT NULL,
    kind         TEXT NOT NULL,
    found_on     INTEGER,
    created_at   REAL NOT NULL,
    changed_at   REAL NOT NULL,
    max_attempts INTEGER NOT NULL,
    data         TEXT NOT NULL DEFAULT '',
    redirects    TEXT NOT NULL DEFAULT '',     -- JSON list
    message      TEXT NOT NULL DEFAULT '',
    fetcher      TEXT,
    proxy_pool   TEXT,
    country      TEXT
) STRICT;

-- The site comes first: links of one page share it, so that they touch few pages of this index.
CREATE UNIQUE INDEX urls_identity ON urls (job, site, fingerprint);
CREATE INDEX urls_queued ON urls (job, site, priority DESC, turn) WHERE state = 'queued';
CREATE INDEX urls_waiting ON urls (job, due_at) WHERE state = 'waiting';
CREATE INDEX urls_leased ON urls (lease_until) WHERE state = 'leased';
CREATE INDEX urls_dead ON urls (job, changed_at) WHERE state = 'dead';

CREATE TABLE queues (
    job      INTEGER NOT NULL,
    site     INTEGER NOT NULL,
    state    TEXT NOT NULL,               -- ready, empty, sleeping (until wake_at), full (until one settles),
                                          -- held (for one worker; for the others until its last one settles)
    priority INTEGER NOT NULL DEFAULT 0,  -- of its best task
    turn     INTEGER NOT NULL DEFAULT 0,  -- the one served longest ago goes first
    wake_at  REAL,
    held_for TEXT,
    taken    INTEGER NOT NULL DEFAULT 0,  -- URLs ever admitted, for the site's budget
    PRIMARY KEY (job, site)
) STRICT, WITHOUT ROWID;

CREATE INDEX queues_ready ON queues (job, priority DESC, turn) WHERE state = 'ready';
CREATE INDEX queues_sleeping ON queues (job, wake_at) WHERE state = 'sleeping';
CREATE INDEX queues_slotless ON queues (site) WHERE state IN ('full', 'held');
CREATE INDEX queues_held ON queues (held_for) WHERE state = 'held';

CREATE TABLE shapes (
    job   INTEGER NOT NULL,
    site  INTEGER NOT NULL,
    shape TEXT NOT NULL,
    taken INTEGER NOT NULL,
    PRIMARY KEY (job, site, shape)
) STRICT, WITHOUT ROWID;

CREATE TABLE incidents (
    url  INTEGER NOT NULL REFERENCES urls (number),
    at   REAL NOT NULL,
    what TEXT NOT NULL
) STRICT;

CREATE INDEX incidents_url ON incidents (url);

CREATE TABLE robots (
    origin     TEXT PRIMARY KEY,
    status     INTEGER NOT NULL,
    body       TEXT NOT NULL,
    fetched_at REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT;

CREATE TABLE workers (
    name       TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT NOT NULL,
    started_at REAL NOT NULL,
    seen_at    REAL NOT NULL,
    job        TEXT NOT NULL,
    state      TEXT NOT NULL,               -- working, idle, draining
    in_flight  INTEGER NOT NULL,
    done       INTEGER NOT NULL,
    cpu        REAL NOT NULL,               -- share of one core
    memory     INTEGER NOT NULL             -- bytes
) STRICT;

CREATE VIEW url_list AS
SELECT jobs.id AS job, urls.url, urls.state, urls.reason, urls.message, sites.name AS site, urls.kind, urls.depth,
       urls.priority, urls.attempts, datetime(urls.created_at, 'unixepoch') AS discovered,
       datetime(urls.changed_at, 'unixepoch') AS changed, parent.url AS found_on
FROM urls
JOIN jobs ON jobs.number = urls.job
JOIN sites ON sites.number = urls.site
LEFT JOIN urls AS parent ON parent.number = urls.found_on;

CREATE VIEW dead_letters AS SELECT * FROM url_list WHERE state = 'dead';
