-- What all workers share about the exits of proxy pools.
--
--   exits          the health of each exit, and until when it rests
--   exit_uses      exits that a page has tried in vain, for an hour
--   exit_sessions  lasting sessions of gateways that were banned, and which of their ids is now in use

CREATE TABLE exits (
    pool       TEXT NOT NULL,
    name       TEXT NOT NULL,               -- the address without credentials
    tries      INTEGER NOT NULL,
    successes  INTEGER NOT NULL,
    failures   INTEGER NOT NULL,
    bans       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    tokens     REAL NOT NULL,
    latency    REAL,                        -- seconds, a mean in which older tries count less
    score      REAL NOT NULL,               -- share of successes, in the same way
    run        INTEGER NOT NULL,            -- successes in a row; failures in a row are negative
    strikes    INTEGER NOT NULL,            -- rests that were not made good yet
    rest_until REAL NOT NULL,
    changed_at REAL NOT NULL,
    last_error TEXT NOT NULL,
    PRIMARY KEY (pool, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX exits_changed ON exits (pool, changed_at);

CREATE TABLE exit_uses (
    fingerprint BLOB NOT NULL,
    name        TEXT NOT NULL,
    forget_at   REAL NOT NULL,
    PRIMARY KEY (fingerprint, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX exit_uses_old ON exit_uses (forget_at);

CREATE TABLE exit_sessions (
    pool       TEXT NOT NULL,
    session    TEXT NOT NULL,               -- site/... or key/...
    generation INTEGER NOT NULL,
    changed_at REAL NOT NULL,
    PRIMARY KEY (pool, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX exit_sessions_changed ON exit_sessions (pool, changed_at);
