-- The log of attempts by time, newest first.
--
-- A covering index: filters need not read the attempts themselves. It grows only at its end.

CREATE INDEX attempts_at ON attempts (at, site, outcome, route, reason);
