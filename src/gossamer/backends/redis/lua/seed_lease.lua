-- The lease to read the source of a job, and what was found in the source. KEYS: seed_leases, seed_sites of the job, troubles.
-- ARGV: time or '', verb, job id, then
--   claim: worker, seconds. Returns 1 if the worker has the lease now, 0 while another one holds it.
--   holder: returns the worker that has the lease now, or ''.
--   release: worker. It gives the lease back.
--   note: a trouble or '', and sites. The first trouble stays.

local verb, job = ARGV[2], ARGV[3]
local known = redis.call('HGET', KEYS[1], job) or ''
local till, lasts, holder = string.match(known, '^(%S+) (%S+) (.*)$')
if not till then till, holder = string.match(known, '^(%S+) (.*)$') end  -- written by an older version

-- An end further away than the length of the lease was written while the clock was ahead.
local function is_held(length)
    till = tonumber(till or 0)
    return holder and till > now and till <= now + (tonumber(lasts) or length)
end

if verb == 'holder' then
    return is_held(0) and holder or ''
elseif verb == 'claim' then
    local length = tonumber(ARGV[5])
    if is_held(length) and holder ~= ARGV[4] then return 0 end
    redis.call('HSET', KEYS[1], job, string.format('%.6f %.6f %s', now + length, length, ARGV[4]))
elseif verb == 'release' then
    if holder == ARGV[4] then redis.call('HDEL', KEYS[1], job) end
else
    if ARGV[4] ~= '' then redis.call('HSETNX', KEYS[3], job, ARGV[4]) end
    for i = 5, #ARGV do redis.call('SADD', KEYS[2], ARGV[i]) end
end
return 1
