-- What became of every item that was yielded, and which spiders see a record.
--
--   item_counts  the account of a page's items in one job: of its last settlement, so that storing a page again counts
--                nothing twice. `notes` has the rest of it as JSON: src/gossamer/model/item_account.py
--   sightings    page, state, content: the page from which the job first had the record, what became of that item
--                (store/record_rules.py: SEEN_STATES), and the start of its content hash; 0 and x'' if unknown
--   seen_by      spiders that saw a record which another spider wrote last; `records.spider` is not repeated here

CREATE TABLE item_counts (
    job       TEXT NOT NULL,
    page      INTEGER NOT NULL REFERENCES pages (number),
    at        REAL NOT NULL,
    yielded   INTEGER NOT NULL,             -- the sum of the next nine
    new       INTEGER NOT NULL,
    changed   INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    equal     INTEGER NOT NULL,
    conflict  INTEGER NOT NULL,
    held      INTEGER NOT NULL,
    dropped   INTEGER NOT NULL,
    faulty    INTEGER NOT NULL,
    lost      INTEGER NOT NULL,
    fine      INTEGER NOT NULL,             -- what the quality checks found
    flawed    INTEGER NOT NULL,
    shared    INTEGER NOT NULL,             -- of them, with a record that another spider writes as well
    parser    TEXT NOT NULL,             -- the version of the code that yielded them
    notes     TEXT NOT NULL,
    PRIMARY KEY (job, page)
) STRICT, WITHOUT ROWID;

ALTER TABLE sightings ADD COLUMN page INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sightings ADD COLUMN state INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sightings ADD COLUMN content BLOB NOT NULL DEFAULT x'';

CREATE TABLE seen_by (
    spider TEXT NOT NULL,
    record INTEGER NOT NULL REFERENCES records (number),
    PRIMARY KEY (spider, record)
) STRICT, WITHOUT ROWID;
