-- Find the unfinished job of a name, or open a new one. KEYS: book, jobs, running, dropping.
-- ARGV: time or '', name, slug, terms (JSON), 'fresh' or ''.
-- Returns {job as JSON, 1 when it was found}. A job that was replaced is in `dropping` until its shards are cleared.

local now
if ARGV[1] == '' then
    local time = redis.call('TIME')
    now = tonumber(time[1]) + tonumber(time[2]) / 1000000
else
    now = tonumber(ARGV[1])
end
local name = ARGV[2]
local id = redis.call('HGET', KEYS[3], name)
local found = id and redis.call('HGET', KEYS[2], id)
if found then
    local job = cjson.decode(found)
    if ARGV[5] == '' then
        -- The limit belongs to the command that runs now; the dedup window stays as the job began.
        job.terms = ARGV[4]
        local text = cjson.encode(job)
        redis.call('HSET', KEYS[2], id, text)
        return {text, 1}
    end
    job.state, job.ending, job.finished_at = 'finished', 'replaced', string.format('%.6f', now)
    redis.call('HSET', KEYS[2], id, cjson.encode(job))
    redis.call('SADD', KEYS[4], id)
end
local number = redis.call('HINCRBY', KEYS[1], 'jobs', 1)
id = ARGV[3] .. '-' .. number
local text = cjson.encode({
    number = number, id = id, name = name, state = 'running', ending = '', sealed = false,
    created_at = string.format('%.6f', now), finished_at = '', terms = ARGV[4],
})
redis.call('HSET', KEYS[2], id, text)
redis.call('HSET', KEYS[3], name, id)
return {text, 0}
