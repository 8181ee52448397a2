-- A session and the time. KEYS: sessions. ARGV: time or '', name. Returns the session (false: there is none), the time.

return {redis.call('HGET', KEYS[1], ARGV[2]), string.format('%.6f', now)}
