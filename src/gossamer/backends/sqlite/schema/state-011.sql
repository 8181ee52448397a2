-- Access over HTTP.
--
--   api_keys  who may use the project over HTTP; only the SHA-256 of a key's secret is stored
--   answers   answers to repeatable requests, until they expire; status 0: not complete yet
--   audit     writes over HTTP, and by whom; the oldest lines are deleted

CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    digest     TEXT NOT NULL,               -- in hex
    scopes     TEXT NOT NULL,               -- separated by commas
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    used_at    REAL,
    rate       REAL,                        -- requests per second
    open_jobs  INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE answers (
    name   TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    status INTEGER NOT NULL,
    body   BLOB NOT NULL,
    until  REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX answers_until ON answers (until);

CREATE TABLE audit (
    number  INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    key     TEXT NOT NULL,
    name    TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    status  INTEGER NOT NULL,
    address TEXT NOT NULL
) STRICT;
