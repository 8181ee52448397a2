-- A generation of a lasting session was banned: start the next one, once for all workers that saw the ban.
-- KEYS: generations of the pool's sessions, when they were renewed. ARGV: time or '', session, the banned generation,
-- how long a session stays renewed (seconds). Returns the generation to use now.

local limit = string.format('(%.17g', now - tonumber(ARGV[4]))
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', limit, 'LIMIT', 0, 1000)
if #old > 0 then
    redis.call('HDEL', KEYS[1], unpack(old))
    redis.call('ZREM', KEYS[2], unpack(old))
end
local seen = tonumber(ARGV[3])
local known = tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or 0)
if known > seen then return known end
redis.call('HSET', KEYS[1], ARGV[2], seen + 1)
redis.call('ZADD', KEYS[2], string.format('%.17g', now), ARGV[2])
return seen + 1
