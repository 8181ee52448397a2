-- Give a lock back, unless it has become somebody else's meanwhile. KEYS: lock. ARGV: token. Returns 1 when it was ours.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
