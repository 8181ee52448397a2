-- Claim the answer to a repeatable request. KEYS: the answer. ARGV: time or '', digest, seconds.
-- Returns nil if the caller now has the claim, otherwise what is stored: when it expires, its digest, its status and
-- its body.

local known = redis.call('HMGET', KEYS[1], 'until', 'digest', 'status', 'body')
if known[1] and tonumber(known[1]) > now then return known end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'until', string.format('%.6f', now + tonumber(ARGV[3])), 'digest', ARGV[2], 'status', '0',
    'body', '')
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[3]) * 1000))
return nil
