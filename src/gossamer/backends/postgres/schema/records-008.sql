-- What became of every item that was yielded, and which spiders see a record.
--
--   item_counts  the account of a page's items in one job: of its last settlement, so that storing a page again counts
--                nothing twice. `notes` has the rest of it as JSON: src/gossamer/model/item_account.py
--   sightings    page, state, content: the page from which the job first had the record, what became of that item
--                (store/record_rules.py: SEEN_STATES), and the start of its content hash; 0 and '' if unknown
--   seen_by      spiders that saw a record which another spider wrote last; `records.spider` is not repeated here

CREATE TABLE item_counts (
    job       text NOT NULL,
    page      bigint NOT NULL,
    at        double precision NOT NULL,
    yielded   integer NOT NULL,              -- the sum of the next nine
    new       integer NOT NULL,
    changed   integer NOT NULL,
    unchanged integer NOT NULL,
    equal     integer NOT NULL,
    conflict  integer NOT NULL,
    held      integer NOT NULL,
    dropped   integer NOT NULL,
    faulty    integer NOT NULL,
    lost      integer NOT NULL,
    fine      integer NOT NULL,              -- what the quality checks found
    flawed    integer NOT NULL,
    shared    integer NOT NULL,              -- of them, with a record that another spider writes as well
    parser    text NOT NULL,             -- the version of the code that yielded them
    notes     text NOT NULL,
    PRIMARY KEY (job, page)
);

ALTER TABLE sightings ADD COLUMN page bigint NOT NULL DEFAULT 0;
ALTER TABLE sightings ADD COLUMN state smallint NOT NULL DEFAULT 0;
ALTER TABLE sightings ADD COLUMN content bytea NOT NULL DEFAULT '';

CREATE TABLE seen_by (
    spider text NOT NULL,
    record bigint NOT NULL,
    PRIMARY KEY (spider, record)
);
