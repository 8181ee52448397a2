-- Seal, close or reopen a job. KEYS: book, jobs, running. ARGV: time or '', id, 'seal' | 'close' | 'reopen', ending.
-- Returns 1 when it changed something: for closing, to exactly one caller.

local found = redis.call('HGET', KEYS[2], ARGV[2])
if not found then return 0 end
local job = cjson.decode(found)
if ARGV[3] == 'seal' then
    if job.sealed then return 0 end
    job.sealed = true
elseif ARGV[3] == 'close' then
    if job.state ~= 'running' then return 0 end
    local now = tonumber(ARGV[1])
    if not now then
        local time = redis.call('TIME')
        now = tonumber(time[1]) + tonumber(time[2]) / 1000000
    end
    job.state, job.ending, job.finished_at = 'finished', ARGV[4], string.format('%.6f', now)
    if redis.call('HGET', KEYS[3], job.name) == job.id then redis.call('HDEL', KEYS[3], job.name) end
    redis.call('HDEL', KEYS[3], '#' .. job.id)
else
    if job.state == 'running' then return 0 end
    job.state, job.ending, job.finished_at = 'running', '', ''
    -- A newer unfinished job of that name keeps the name; this one is found by its id.
    if redis.call('HSETNX', KEYS[3], job.name, job.id) == 0 then
        redis.call('HSET', KEYS[3], '#' .. job.id, job.id)
    end
end
redis.call('HSET', KEYS[2], ARGV[2], cjson.encode(job))
return 1
