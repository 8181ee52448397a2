-- The log of attempts by time, the newest first. It holds the time alone: an entry of an index has no room for long texts.

CREATE INDEX attempts_at ON attempts (at);
