-- Requests that must not be sent twice and may be out (store/contract.py, SentNotes).

CREATE TABLE sent_notes (
    job         text NOT NULL,
    fingerprint bytea NOT NULL,
    owner       text NOT NULL,              -- a random name of the lease that sends it
    at          double precision NOT NULL,
    PRIMARY KEY (job, fingerprint)
);
