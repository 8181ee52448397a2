-- The log of attempts by time, newest first. It holds only the time: an index entry has no room for long texts.

CREATE INDEX attempts_at ON attempts (at);
