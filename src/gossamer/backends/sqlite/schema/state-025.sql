-- Jobs by the key that started them over HTTP, '' for the others: lists of jobs use it instead of filtering all jobs.

CREATE INDEX jobs_owned ON jobs (coalesce(json_extract(terms, '$.owner'), ''), number);
