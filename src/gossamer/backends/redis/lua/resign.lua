-- Give up the lead, so that another scheduler can lead at once. KEYS: leader. ARGV: scheduler, its token. Returns 1 if
-- it did lead.

local leader = redis.call('HMGET', KEYS[1], 'name', 'token')
if leader[1] ~= ARGV[1] or leader[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'name', '', 'until', '0')
return 1
