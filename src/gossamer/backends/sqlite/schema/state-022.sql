-- What operators want of sites and of workers, and an index for the queue as people look at it.
--
--   site_orders  at least `interval` seconds between two requests of a site, and none before `rest_until`

CREATE TABLE site_orders (
    site       TEXT PRIMARY KEY,            -- a site may have an order before it has a row in `sites`
    at         REAL NOT NULL,
    by         TEXT NOT NULL,
    interval   REAL,
    rest_until REAL
) STRICT, WITHOUT ROWID;

ALTER TABLE workers ADD COLUMN drains INTEGER NOT NULL DEFAULT 0;  -- somebody wants it to drain

-- Why the pages of a site wait, and how many of them, without a look at their rows.
CREATE INDEX urls_waiting_sites ON urls (job, site, reason) WHERE state = 'waiting';
