-- Access over HTTP.
--
--   api_keys  who may use the project over HTTP; the secret of a key is not here, only its SHA-256
--   answers   answers to requests that may be repeated, until their time is over; status 0: not complete yet
--   audit     what was written over HTTP, by whom; the oldest lines are deleted

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
