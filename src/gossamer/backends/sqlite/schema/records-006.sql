-- The log of attempts by time, the newest first.
--
-- The index holds all that can be asked for, so that a filter needs no look at the attempts themselves. It grows at its
-- end only.

CREATE INDEX attempts_at ON attempts (at, site, outcome, route, reason);
