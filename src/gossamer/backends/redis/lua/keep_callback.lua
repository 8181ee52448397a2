-- Enter a callback in the outbox, or replace the one with its id. KEYS: callbacks, open ones, finished ones. ARGV: id,
-- JSON, 1 if it is open, its time (when it is sent next, or when it was finished), 1 if it must be new, how many
-- finished ones are kept. Returns 0 if it must be new and is not.

if ARGV[5] == '1' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
local stays, goes = KEYS[2], KEYS[3]
if ARGV[3] ~= '1' then stays, goes = KEYS[3], KEYS[2] end
redis.call('ZREM', goes, ARGV[1])
redis.call('ZADD', stays, ARGV[4], ARGV[1])
local too_old = redis.call('ZRANGE', KEYS[3], 0, -1 - tonumber(ARGV[6]))
for _, id in ipairs(too_old) do
    redis.call('HDEL', KEYS[1], id)
    redis.call('ZREM', KEYS[3], id)
end
return 1
