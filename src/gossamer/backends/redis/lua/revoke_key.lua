-- Revoke a key of the HTTP API. KEYS: keys, revoked. ARGV: id, the time.
-- Returns 1, or 0 if it is unknown or was revoked before.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2])
