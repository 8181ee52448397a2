-- Requests that must not be sent twice and may be out (store/contract.py, SentNotes).

CREATE TABLE sent_notes (
    job         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    owner       TEXT NOT NULL,              -- a random name of the lease that sends it
    at          REAL NOT NULL,
    PRIMARY KEY (job, fingerprint)
) STRICT, WITHOUT ROWID;
