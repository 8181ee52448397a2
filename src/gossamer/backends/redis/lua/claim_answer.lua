-- The claim on an answer to a request that may be repeated. KEYS: the answer.
-- ARGV: time or '', digest, seconds. Returns nil when the caller has the claim now, else what is stored: the moment it
-- ends, its digest, its status and its body.

local known = redis.call('HMGET', KEYS[1], 'until', 'digest', 'status', 'body')
if known[1] and tonumber(known[1]) > now then return known end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'until', string.format('%.6f', now + tonumber(ARGV[3])), 'digest', ARGV[2], 'status', '0',
    'body', '')
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[3]) * 1000))
return nil
