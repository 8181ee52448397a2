-- Delete everything learned about sites. KEYS: standings. Returns how many there were.

local count = redis.call('HLEN', KEYS[1])
redis.call('UNLINK', KEYS[1])
return count
