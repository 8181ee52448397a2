-- Write a schedule, and begin the job of its tick, in one step. KEYS: those of jobs.lua, then schedules, leader.
-- ARGV: time or '', leader ('' when it is not a scheduler who writes), its token, name, version that it must have now
-- (0: there must be none), standing (JSON), last job, and for a job that begins: its name, slug and terms (JSON).
--
-- A schedule is written as its version, its last job and its standing, with a blank between them. The standing is not
-- read here: JSON in Lua would round its times.
-- Returns {-1} when the leader's term is over, {0} when the schedule is not as it was; nothing is changed then. Else
-- {version, job as JSON or '', 1 when another job was replaced}.

local SCHEDULES, LEADER = KEYS[5], KEYS[6]
if ARGV[2] ~= '' then
    local leader = redis.call('HMGET', LEADER, 'name', 'token', 'until')
    if leader[1] ~= ARGV[2] or leader[2] ~= ARGV[3] or tonumber(leader[3]) <= now then return {-1} end
end
local name, last_job = ARGV[4], ARGV[7]
local stored = redis.call('HGET', SCHEDULES, name)
local version = stored and string.match(stored, '^%d+') or '0'
if version ~= ARGV[5] then return {0} end

local text, replaced = '', 0
if ARGV[8] then text, last_job, replaced = begin_job(ARGV[8], ARGV[9], ARGV[10]) end
local changed = redis.call('HINCRBY', BOOK, 'changes', 1)
redis.call('HSET', SCHEDULES, name, changed .. ' ' .. last_job .. ' ' .. ARGV[6])
return {changed, text, replaced}
