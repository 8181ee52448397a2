-- Write down what was learned about a site, if what is known of it is still what the caller saw. KEYS: standings.
-- ARGV: site, what was seen ('' for nothing), the routes of all its patterns now. Returns 1 when it was written.

local known = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if known ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
