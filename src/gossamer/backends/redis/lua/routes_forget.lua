-- Delete everything learned about sites. KEYS: learned_routes. Returns how many there were.

local count = redis.call('HLEN', KEYS[1])
redis.call('UNLINK', KEYS[1])
return count
