-- Results that wait on the disks of workers: a note for each process that holds some (store/contract.py, SpoolNote).

CREATE TABLE spools (
    name TEXT PRIMARY KEY,                          -- the folder of the process, below its spool
    note TEXT NOT NULL                              -- JSON
) STRICT, WITHOUT ROWID;
