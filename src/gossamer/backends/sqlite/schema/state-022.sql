-- Operators' orders for sites and workers, and an index for views of the queue.
--
--   site_orders  at least `interval` seconds between two requests to a site, and none before `rest_until`

CREATE TABLE site_orders (
    site       TEXT PRIMARY KEY,            -- a site may have an order before it has a row in `sites`
    at         REAL NOT NULL,
    by         TEXT NOT NULL,
    interval   REAL,
    rest_until REAL
) STRICT, WITHOUT ROWID;

ALTER TABLE workers ADD COLUMN drains INTEGER NOT NULL DEFAULT 0;  -- an operator wants it to drain

-- Why the pages of a site wait, and how many, without reading their rows.
CREATE INDEX urls_waiting_sites ON urls (job, site, reason) WHERE state = 'waiting';
