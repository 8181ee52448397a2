-- Loaded before every script that needs the time: `now`, in seconds since the epoch.
-- ARGV[1] is the time in tests, or '' for the server's own clock.

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
