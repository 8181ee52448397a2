-- Callbacks: the outbox of the HTTP API (access/contract.py, CallbackBook).

CREATE TABLE callbacks (
    id       TEXT PRIMARY KEY,
    next_at  REAL,                          -- 0 while its job runs, NULL when it is finished
    ended_at REAL,
    callback TEXT NOT NULL                  -- JSON
) STRICT, WITHOUT ROWID;

CREATE INDEX callbacks_open ON callbacks (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX callbacks_ended ON callbacks (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE callback_secrets (
    owner   TEXT PRIMARY KEY,               -- id of a key; '' for the project itself
    secrets TEXT NOT NULL                   -- JSON
) STRICT, WITHOUT ROWID;
