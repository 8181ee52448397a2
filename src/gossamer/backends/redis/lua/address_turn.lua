-- Reserve the next request to a network address. KEYS: the address. ARGV: time, interval and longest wait in seconds.
-- Returns the wait in microseconds; if that exceeds the longest wait, nothing is reserved.

local interval, longest = tonumber(ARGV[2]), tonumber(ARGV[3])
local next_at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local TOO_FAR = 3600  -- seconds, as in leasing.py: no reservation reaches so far: the clock was ahead
if next_at > now + TOO_FAR then next_at = now end
local wait = next_at - now
if wait <= longest then
    local lasts = math.max(1, math.ceil((wait + interval) * 1000))
    redis.call('SET', KEYS[1], string.format('%.6f', next_at + interval), 'PX', lasts)
end
return math.ceil(wait * 1000000)
