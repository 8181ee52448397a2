-- Make changes on the shelf, all of them or none. KEYS: leader, then for each kind: rows, times, ends.
-- ARGV: time or '', leader ('': any), its token, then for each change six words: its verb (put, drop, trim), the place
-- of its kind among the kinds (from 0), key, expected stamp ('*': any, '': there must be none), packed row, and the time
-- by which it is listed ('': none). For trim, the key is the number of rows that stay.
-- A packed row: 8 bytes stamp, then as doubles when it ends (0: never) and the time by which it is listed, value. Returns 1; 0 if a row is not as expected; -1 if
-- the leader's term is over.

local STAMP, ENDS, WORDS, FIRST = 8, 16, 6, 4
local EXPIRED = 1000 -- at most so many expired rows of a kind are deleted at once

if ARGV[2] ~= '' then
    local leader = redis.call('HMGET', KEYS[1], 'name', 'token', 'until')
    if leader[1] ~= ARGV[2] or leader[2] ~= ARGV[3] or tonumber(leader[3]) <= now then return -1 end
end

local function keys_of(index)
    local first = 2 + 3 * tonumber(ARGV[index + 1])
    return KEYS[first], KEYS[first + 1], KEYS[first + 2]
end

local function forget(rows, times, ends, key)
    redis.call('HDEL', rows, key)
    redis.call('ZREM', times, key)
    redis.call('ZREM', ends, key)
end

for index = FIRST, #ARGV, WORDS do
    local expected = ARGV[index + 3]
    if ARGV[index] ~= 'trim' and expected ~= '*' then
        local row, stamp = redis.call('HGET', (keys_of(index)), ARGV[index + 2]), ''
        if row then
            local ends = struct.unpack('>d', string.sub(row, STAMP + 1, ENDS))
            if ends == 0 or ends > now then stamp = string.sub(row, 1, STAMP) end
        end
        if stamp ~= expected then return 0 end
    end
end

for place = 4, #KEYS, 3 do
    local over = redis.call('ZRANGEBYSCORE', KEYS[place], '-inf', string.format('%.6f', now), 'LIMIT', 0, EXPIRED)
    for _, key in ipairs(over) do forget(KEYS[place - 2], KEYS[place - 1], KEYS[place], key) end
end

for index = FIRST, #ARGV, WORDS do
    local rows, times, ends = keys_of(index)
    local verb, key = ARGV[index], ARGV[index + 2]
    if verb == 'put' then
        local packed, at = ARGV[index + 4], ARGV[index + 5]
        local over = struct.unpack('>d', string.sub(packed, STAMP + 1, ENDS))
        redis.call('HSET', rows, key, packed)
        if at == '' then redis.call('ZREM', times, key) else redis.call('ZADD', times, at, key) end
        if over == 0 then redis.call('ZREM', ends, key)
        else redis.call('ZADD', ends, string.format('%.6f', over), key) end
    elseif verb == 'drop' then
        forget(rows, times, ends, key)
    else
        for _, old in ipairs(redis.call('ZRANGE', times, 0, -1 - tonumber(key))) do forget(rows, times, ends, old) end
    end
end
return 1
