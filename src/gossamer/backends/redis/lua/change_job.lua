-- Change a job. ARGV: time or '', id, 'seal' | 'pause' | 'resume' | 'close' | 'cancel' | 'reopen', ending.
-- Returns 1 when it changed something: for closing and cancelling, to exactly one caller. A running job can be paused
-- and resumed at any time.

local job, verb = find_job(ARGV[2]), ARGV[3]
if not job then return 0 end
if verb == 'seal' then
    if job.sealed then return 0 end
    job.sealed = true
elseif verb == 'reopen' then
    if job.state == 'running' then return 0 end
    job.state, job.ending, job.finished_at = 'running', '', ''
    -- A newer unfinished job of that name keeps the name; this one is found by its id.
    if redis.call('HSETNX', RUNNING, job.name, job.id) == 0 then
        redis.call('HSET', RUNNING, '#' .. job.id, job.id)
    end
elseif job.state ~= 'running' then
    return 0
elseif verb == 'close' then
    end_job(job, 'finished', ARGV[4])
    return 1
elseif verb == 'cancel' then
    give_up(job, 'cancelled', ARGV[4])
    return 1
else
    job.paused = verb == 'pause'
end
write_job(job)
return 1
