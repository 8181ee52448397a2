-- Write a session, if it is unchanged since the caller read it. KEYS: sessions, when they were used.
-- ARGV: name, what was read ('': there was none), the new value, when it was used, how many sessions there may be.
-- Returns 0 if another worker was faster. Beyond the bound the least recently used session is deleted.

if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
if ARGV[2] == '' and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[5]) then
    local oldest = redis.call('ZPOPMIN', KEYS[2])[1]
    redis.call('HDEL', KEYS[1], oldest)
end
return 1
