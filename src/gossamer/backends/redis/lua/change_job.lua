-- Change a job. ARGV: time or '', id, 'seal' | 'pause' | 'resume' | 'close' | 'settle' | 'terms' | 'cancel' | 'reopen' |
-- 'cleared' | 'forget', then for 'seal' a digest of its seeds, for 'close' the ending and the outcome (JSON, or ''), for
-- 'settle' the new outcome of a finished job, for 'terms'
-- the present and the new ones (JSON), for 'cancel' the ending, for 'cleared' the time at which the job ended whose
-- open URLs are gone.
-- Returns 1 if something changed; of several callers that close or cancel, exactly one gets 1. A running job can be
-- paused and resumed at any time. A job can be deleted once it has ended and is cleared, unless it is the newest of its
-- name; for 'forget' ARGV[4] is 'owned' if that does not matter, because a key started it.

local job, verb = find_job(ARGV[2]), ARGV[3]
if verb == 'cleared' then
    -- The job may have run again, and been given up again, since the caller read it.
    if job and job.finished_at ~= ARGV[4] then return 0 end
    return redis.call('SREM', DROPPING, ARGV[2])
end
if not job then return 0 end
if verb == 'forget' then
    local place = place_among(job.name, job.number, job.id)
    local newest = redis.call('ZREVRANGEBYLEX', NAMED, '(' .. job.name .. '\1', '[' .. job.name .. '\0', 'LIMIT', 0, 1)
    if job.state == 'running' or (newest[1] == place and ARGV[4] ~= 'owned') then return 0 end
    if not redis.call('ZSCORE', NAMED, place) then return 0 end -- whether it is the newest cannot be told
    if redis.call('SISMEMBER', DROPPING, job.id) == 1 then return 0 end
    redis.call('SADD', FORGETTING, job.number)
    redis.call('HDEL', JOBS, job.id)
    redis.call('ZREM', NAMED, place)
    redis.call('ZREM', LISTED, places_in_list(job))
    return 1
end
if verb == 'seal' then
    if job.sealed then return 0 end
    job.sealed, job.start = true, ARGV[4]
elseif verb == 'settle' then
    if job.state ~= 'finished' then return 0 end
    job.outcome = ARGV[4]
elseif verb == 'reopen' then
    if job.state == 'running' then return 0 end
    local ended = job.finished_at
    job.state, job.ending, job.finished_at, job.outcome = 'running', '', '', ''
    -- As text: JSON in Lua would round its numbers. Quotes inside values are escaped, so this can only be the key.
    local terms, changed = string.gsub(job.terms, '"replayed":false', '"replayed":true', 1)
    if changed == 0 and not string.find(terms, '"replayed":true', 1, true) then
        terms = string.gsub(terms, '^{', '{"replayed":true,', 1)
    end
    if ended and ended ~= '' and not string.find(terms, '"first_ended":%d') then
        terms, changed = string.gsub(terms, '"first_ended":null', '"first_ended":' .. ended, 1)
        if changed == 0 then terms = string.gsub(terms, '^{', '{"first_ended":' .. ended .. ',', 1) end
    end
    job.terms = terms
    redis.call('SREM', DROPPING, job.id)
    -- A newer unfinished job of that name keeps the name; this one is found by its id.
    if redis.call('HSETNX', RUNNING, job.name, job.id) == 0 then
        redis.call('HSET', RUNNING, '#' .. job.id, job.id)
    end
elseif job.state ~= 'running' then
    return 0
elseif verb == 'close' then
    end_job(job, 'finished', ARGV[4], ARGV[5])
    return 1
elseif verb == 'terms' then
    if job.terms ~= ARGV[4] then return 0 end -- changed since the caller looked
    job.terms = ARGV[5]
elseif verb == 'cancel' then
    give_up(job, 'cancelled', ARGV[4])
    return 1
else
    job.paused = verb == 'pause'
end
write_job(job)
return 1
