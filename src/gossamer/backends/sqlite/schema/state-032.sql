-- The account of a job: how many of its waiting URLs are links for which the queue has no room yet, and how many URLs
-- were dropped for which reason (JSON).

ALTER TABLE jobs ADD COLUMN postponed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN drops TEXT NOT NULL DEFAULT '{}';

-- Ended jobs are settled; a job that runs decides by its drops when it ends.
UPDATE jobs SET drops = (
    SELECT json_group_object(reason, dropped)
    FROM (SELECT reason, count(*) AS dropped FROM urls WHERE job = jobs.number AND state = 'o' GROUP BY reason))
WHERE state = 'running' AND dropped > 0;
