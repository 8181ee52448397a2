-- Count the outcomes of exits, in order. The rules and numbers are those of routing/proxies/health.py.
-- KEYS: exits of the pool, their changes, names of pools.
-- ARGV: time or '', pool, cooldown, longest cooldown, longest rest after failures, failures in a row that let an exit
-- rest, 1 if bans let it rest, decay, successes that cancel a strike, most strikes that count, how long after its last
-- use an exit is deleted, and a MessagePack list of {exit, outcome, times, seconds, bytes, tokens, words}.

local cooldown, longest, longest_after_failures = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local patience, bans_rest = tonumber(ARGV[6]), ARGV[7] == '1'
local decay, ease, most_strikes = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

local limit = string.format('(%.17g', now - tonumber(ARGV[11]))
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', limit, 'LIMIT', 0, 1000)
if #old > 0 then
    redis.call('HDEL', KEYS[1], unpack(old))
    redis.call('ZREM', KEYS[2], unpack(old))
end

local ROW = '>dddddddddddd'
local rows = {}

-- A latency of -1: none has been measured.
local function row_of(name)
    if rows[name] then return rows[name] end
    local row = {tries = 0, successes = 0, failures = 0, bans = 0, bytes = 0, tokens = 0, latency = -1, score = 1,
        run = 0, strikes = 0, rest_until = 0, words = ''}
    local text = redis.call('HGET', KEYS[1], name)
    if text then
        local place
        row.tries, row.successes, row.failures, row.bans, row.bytes, row.tokens, row.latency, row.score, row.run,
            row.strikes, row.rest_until, row.changed_at, place = struct.unpack(ROW, text)
        row.words = string.sub(text, place)
    end
    rows[name] = row
    return row
end

local function rest(row, cap)
    row.rest_until = now + math.min(cooldown * 2 ^ math.min(row.strikes, most_strikes), cap)
    row.strikes = row.strikes + 1
end

for _, report in ipairs(cmsgpack.unpack(ARGV[12])) do
    local name, outcome, times, seconds, bytes, tokens, words =
        report[1], report[2], report[3], report[4], report[5], report[6], report[7]
    local row = row_of(name)
    local awake = now >= row.rest_until
    local share = 1 - (1 - decay) ^ times
    local good = outcome == 'ok' and 1 or 0
    row.tries, row.bytes, row.tokens = row.tries + times, row.bytes + bytes, row.tokens + tokens
    row.score = row.score + (good - row.score) * share
    if words ~= '' and good == 0 then row.words = words end
    if outcome == 'ok' then
        row.successes = row.successes + times
        row.latency = row.latency < 0 and seconds or row.latency + (seconds - row.latency) * share
        if awake then
            local before = math.max(row.run, 0)
            row.run = before + times
            row.strikes = math.max(0, row.strikes - (math.floor(row.run / ease) - math.floor(before / ease)))
        end
    elseif outcome == 'banned' then
        row.bans = row.bans + times
        row.run = math.min(row.run, 0)
        if awake and bans_rest then rest(row, longest) end
    else
        row.failures = row.failures + times
        row.run = math.min(row.run, 0) - times
        if awake and row.run <= -patience then rest(row, math.min(longest, longest_after_failures)) end
    end
end

for name, row in pairs(rows) do
    redis.call('HSET', KEYS[1], name, struct.pack(ROW, row.tries, row.successes, row.failures, row.bans, row.bytes,
        row.tokens, row.latency, row.score, row.run, row.strikes, row.rest_until, now) .. row.words)
    redis.call('ZADD', KEYS[2], now, name)
end
redis.call('SADD', KEYS[3], ARGV[2])
return 1
