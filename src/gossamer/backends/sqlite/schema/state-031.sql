-- What a worker did for each of its jobs in the last minute, as JSON: the time that a job may still take is estimated from it.

ALTER TABLE workers ADD COLUMN paces TEXT NOT NULL DEFAULT '{}';
