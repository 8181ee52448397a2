-- Write or remove a schedule, and start the job of its tick, in one step. KEYS: those of jobs.lua, then schedules,
-- leader. ARGV: time or '', leader ('' if the writer is not a scheduler), its token, name, version that it must have
-- now (0: there must be none; '': any), progress (JSON; '': remove it), last job, and for a job to start: its name,
-- slug and terms (JSON), and the id of the job that it may replace, or ''.
--
-- A schedule is stored as its version, its last job and its progress, separated by blanks. The progress is not decoded
-- here: JSON in Lua would round its times.
-- Returns {-1} if the leader's term is over, {0} if the schedule has changed or another job is in the way; then nothing
-- is changed. Otherwise {version, job as JSON or '', id of the job that it replaced or ''}.

local SCHEDULES, LEADER = KEYS[8], KEYS[9]
if ARGV[2] ~= '' then
    local leader = redis.call('HMGET', LEADER, 'name', 'token', 'until')
    if leader[1] ~= ARGV[2] or leader[2] ~= ARGV[3] or tonumber(leader[3]) <= now then return {-1} end
end
local name, last_job = ARGV[4], ARGV[7]
local stored = redis.call('HGET', SCHEDULES, name)
local version = stored and (string.match(stored, '^%d+') or '?') or '0'
if ARGV[5] ~= '' and version ~= ARGV[5] then return {0} end
if ARGV[6] == '' then
    if not stored then return {0} end
    redis.call('HDEL', SCHEDULES, name)
    return {redis.call('HINCRBY', BOOK, 'changes', 1), '', ''}
end

local text, replaced = '', ''
if ARGV[8] then
    -- The newest running job counts. It need not have the name: a job that ran again has it only if it was the first
    -- to.
    local going, given = find_job(redis.call('HGET', RUNNING, ARGV[8])), find_job(ARGV[11])
    if given and given.state == 'running' and given.name == ARGV[8] and (not going or given.number > going.number) then
        going = given
    end
    if going and going.id ~= ARGV[11] then return {0} end
    text, last_job, replaced = begin_job(ARGV[8], ARGV[9], ARGV[10], going)
end
local changed = redis.call('HINCRBY', BOOK, 'changes', 1)
redis.call('HSET', SCHEDULES, name, changed .. ' ' .. last_job .. ' ' .. ARGV[6])
return {changed, text, replaced}
