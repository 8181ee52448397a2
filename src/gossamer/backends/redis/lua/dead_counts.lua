-- The number of dead letters of several jobs in one shard. KEYS: the key `dead` of each job. Returns the counts, in the
-- same order.

local counts = {}
for place = 1, #KEYS do counts[place] = redis.call('ZCARD', KEYS[place]) end
return counts
