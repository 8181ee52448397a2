-- Remember the proxies that a page has tried in vain, until they expire. KEYS: the page's set of proxies.
-- ARGV: time or '', how long they are remembered (seconds), and the names of proxies to add. Returns those remembered.

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.17g', now))
for place = 3, #ARGV do
    redis.call('ZADD', KEYS[1], string.format('%.17g', now + tonumber(ARGV[2])), ARGV[place])
end
if #ARGV > 2 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return redis.call('ZRANGE', KEYS[1], 0, -1)
