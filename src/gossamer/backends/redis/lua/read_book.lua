-- Whole hashes of the book as of one moment. KEYS: the hashes. Returns the fields and values of each.

local found = {}
for i, key in ipairs(KEYS) do found[i] = redis.call('HGETALL', key) end
return found
