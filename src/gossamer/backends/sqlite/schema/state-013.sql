-- Sessions: named visitors with their cookies, headers and logins (model/session.py, KeptSession).

CREATE TABLE sessions (
    name TEXT PRIMARY KEY,                          -- spider/session
    used_at REAL NOT NULL,
    session BLOB NOT NULL                           -- MessagePack
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_use ON sessions (used_at);
