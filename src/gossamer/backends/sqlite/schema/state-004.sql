-- Lanes: workers that serve only some kinds of tasks lease from the same queue.
--
-- A task waits in the lane that its `fetcher` names; without one the lane is ''. There is a queue for each job, site
-- and lane, so that a worker never meets tasks that it does not serve. The site's politeness (table `sites`) is shared
-- by all lanes. `how` holds further wishes about the route of the page, as JSON.

ALTER TABLE urls ADD COLUMN how TEXT NOT NULL DEFAULT '';

DROP INDEX urls_queued;
CREATE INDEX urls_queued ON urls (job, site, fetcher, priority DESC, turn) WHERE state = 'queued';

ALTER TABLE queues RENAME TO queues_before;
DROP INDEX queues_ready;
DROP INDEX queues_sleeping;
DROP INDEX queues_slotless;
DROP INDEX queues_held;

CREATE TABLE queues (
    job      INTEGER NOT NULL,
    site     INTEGER NOT NULL,
    lane     TEXT NOT NULL,
    state    TEXT NOT NULL,               -- ready, empty, sleeping (until wake_at), full (until one settles),
                                          -- held (for one worker; for the others until its last one settles)
    priority INTEGER NOT NULL DEFAULT 0,  -- of its best task
    turn     INTEGER NOT NULL DEFAULT 0,  -- the one served longest ago goes first
    wake_at  REAL,
    held_for TEXT,
    refused  INTEGER NOT NULL DEFAULT 0,  -- a worker asked since it was last served, and could not have it
    taken    INTEGER NOT NULL DEFAULT 0,  -- URLs ever admitted, for the site's budget: all lanes together
    PRIMARY KEY (job, site, lane)
) STRICT, WITHOUT ROWID;

INSERT INTO queues (job, site, lane, state, priority, turn, wake_at, held_for, taken)
SELECT job, site, '', state, priority, turn, wake_at, held_for, taken FROM queues_before;

INSERT INTO queues (job, site, lane, state, priority, turn)
SELECT job, site, fetcher, 'ready', max(priority), min(turn) FROM urls
WHERE state = 'queued' AND fetcher IS NOT NULL GROUP BY job, site, fetcher;

DROP TABLE queues_before;

CREATE INDEX queues_ready ON queues (job, lane, priority DESC, turn) WHERE state = 'ready';
CREATE INDEX queues_sleeping ON queues (job, wake_at) WHERE state = 'sleeping';
CREATE INDEX queues_slotless ON queues (site) WHERE state IN ('full', 'held');
CREATE INDEX queues_held ON queues (held_for) WHERE state = 'held';
