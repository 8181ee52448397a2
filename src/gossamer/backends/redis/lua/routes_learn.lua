-- Write what was learned about a site, if its stored routes are still what the caller read. KEYS: learned_routes.
-- ARGV: site, what was read ('' for nothing), the routes of all its patterns now. Returns 1 if it was written.

local known = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if known ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
