-- What a copy of a job's shard must know about this moment (state_cut.py). ARGV: time.
-- Returns the time, the last sequence that was given to a URL, how many URLs there are, and all counts of the job.

return {
    string.format('%.17g', now), call('HGET', META, 'sequence') or '0', call('HLEN', URLS), call('HGETALL', COUNTS),
}
