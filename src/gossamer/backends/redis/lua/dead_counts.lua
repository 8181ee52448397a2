-- How many dead letters each of some jobs has in one shard. KEYS: the key `dead` of each job. Returns their counts, in
-- the same order.

local counts = {}
for place = 1, #KEYS do counts[place] = redis.call('ZCARD', KEYS[place]) end
return counts
