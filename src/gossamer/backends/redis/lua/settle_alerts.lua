-- Enter one step of the alerts, all of it or nothing. KEYS: leader, alerts, messages, open ones, finished ones,
-- changes, memory. ARGV: time or '', leader ('' for a state that is loaded), its token, how many changes and how many
-- finished messages are kept, 1 if messages replace those with their ids, memory (JSON; '': unchanged), and then four
-- lists, each after its length: standings (name and JSON), names of those to delete, messages (id, 1 if it is open, its
-- time, JSON), changes (JSON). Returns 0 if the leader's term is over; then nothing is changed.

if ARGV[2] ~= '' then
    local leader = redis.call('HMGET', KEYS[1], 'name', 'token', 'until')
    if leader[1] ~= ARGV[2] or leader[2] ~= ARGV[3] or tonumber(leader[3]) <= now then return 0 end
end
local place = 8
local function list()
    local first = place + 1
    place = first + tonumber(ARGV[place])
    return first, place - 1
end

local first, last = list()
for index = first, last, 2 do redis.call('HSET', KEYS[2], ARGV[index], ARGV[index + 1]) end
first, last = list()
for index = first, last do redis.call('HDEL', KEYS[2], ARGV[index]) end
first, last = list()
for index = first, last, 4 do
    local id = ARGV[index]
    if ARGV[6] == '1' or redis.call('HEXISTS', KEYS[3], id) == 0 then
        redis.call('HSET', KEYS[3], id, ARGV[index + 3])
        local stays, goes = KEYS[4], KEYS[5]
        if ARGV[index + 1] ~= '1' then stays, goes = KEYS[5], KEYS[4] end
        redis.call('ZREM', goes, id)
        redis.call('ZADD', stays, ARGV[index + 2], id)
    end
end
for _, id in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1 - tonumber(ARGV[5]))) do
    redis.call('HDEL', KEYS[3], id)
    redis.call('ZREM', KEYS[5], id)
end
first, last = list()
for index = first, last do redis.call('LPUSH', KEYS[6], ARGV[index]) end
redis.call('LTRIM', KEYS[6], 0, tonumber(ARGV[4]) - 1)
if ARGV[7] ~= '' then redis.call('SET', KEYS[7], ARGV[7]) end
return 1
