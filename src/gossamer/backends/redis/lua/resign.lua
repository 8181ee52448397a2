-- Let the next one lead at once. KEYS: leader. ARGV: who resigns, its token. Returns 1 when it led.

local leader = redis.call('HMGET', KEYS[1], 'name', 'token')
if leader[1] ~= ARGV[1] or leader[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'name', '', 'until', '0')
return 1
