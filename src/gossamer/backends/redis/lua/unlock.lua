-- Release a lock, unless another worker has taken it meanwhile. KEYS: lock. ARGV: token. Returns 1 if it was ours.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
