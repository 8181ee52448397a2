-- Store the answer to a repeatable request, in place of the claim on it. KEYS: the answer.
-- ARGV: time or '', digest, status, body, seconds.

redis.call('HSET', KEYS[1], 'until', string.format('%.6f', now + tonumber(ARGV[5])), 'digest', ARGV[2], 'status',
    ARGV[3], 'body', ARGV[4])
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[5]) * 1000))
return 1
