-- Jobs by the key that began them over HTTP, '' for the others: a list of jobs is read along it, not filtered out of all.

CREATE INDEX jobs_owned ON jobs (coalesce(json_extract(terms, '$.owner'), ''), number);
