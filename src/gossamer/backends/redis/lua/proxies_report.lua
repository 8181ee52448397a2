-- Count the outcomes of proxies, in order. The rules and numbers are those of routing/proxies/health.py.
-- KEYS: proxies of the pool, their changes, proxies at sites that refused them, their changes, names of pools.
-- ARGV: time or '', pool, cooldown, longest cooldown, longest rest after failures, failures in a row that let a proxy
-- rest, 1 if bans let it rest, decay, successes that cancel a strike, most strikes that count, how long after its last
-- use a proxy is deleted, a MessagePack list of {proxy, outcome, times, seconds, bytes, credits, words, site}, and how
-- long after the last report it is forgotten how a proxy fared at a site.

local cooldown, longest, longest_after_failures = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local patience, bans_rest = tonumber(ARGV[6]), ARGV[7] == '1'
local decay, ease, most_strikes = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

local function forget(rows, changes, age)
    local limit = string.format('(%.17g', now - age)
    local old = redis.call('ZRANGEBYSCORE', changes, '-inf', limit, 'LIMIT', 0, 1000)
    if #old > 0 then
        redis.call('HDEL', rows, unpack(old))
        redis.call('ZREM', changes, unpack(old))
    end
end

forget(KEYS[1], KEYS[2], tonumber(ARGV[11]))
forget(KEYS[3], KEYS[4], tonumber(ARGV[13]))

local ROW, AT_SITE = '>dddddddddddd', '>dddd'
local rows, at_sites = {}, {}

-- A latency of -1: none has been measured.
local function row_of(name)
    if rows[name] then return rows[name] end
    local row = {tries = 0, successes = 0, failures = 0, bans = 0, bytes = 0, credits = 0, latency = -1, score = 1,
        run = 0, strikes = 0, rest_until = 0, words = ''}
    local text = redis.call('HGET', KEYS[1], name)
    if text then
        local place
        row.tries, row.successes, row.failures, row.bans, row.bytes, row.credits, row.latency, row.score, row.run,
            row.strikes, row.rest_until, row.changed_at, place = struct.unpack(ROW, text)
        row.words = string.sub(text, place)
    end
    rows[name] = row
    return row
end

-- How a proxy fares at a site; nil for a success at a site that has not refused it.
local function at_site(name, site, outcome)
    local key = name .. '\0' .. site
    if at_sites[key] then return at_sites[key] end
    local text = redis.call('HGET', KEYS[3], key)
    if not text and outcome == 'ok' then return nil end
    local row = {run = 0, strikes = 0, rest_until = 0}
    if text then row.run, row.strikes, row.rest_until = struct.unpack(AT_SITE, text) end
    at_sites[key] = row
    return row
end

local function rest(row, cap)
    row.rest_until = now + math.min(cooldown * 2 ^ math.min(row.strikes, most_strikes), cap)
    row.strikes = row.strikes + 1
end

for _, report in ipairs(cmsgpack.unpack(ARGV[12])) do
    local name, outcome, times, seconds, bytes, credits, words, site =
        report[1], report[2], report[3], report[4], report[5], report[6], report[7], report[8]
    local row = row_of(name)
    local awake = now >= row.rest_until
    local share = 1 - (1 - decay) ^ times
    local good = outcome == 'ok' and 1 or 0
    row.tries, row.bytes, row.credits = row.tries + times, row.bytes + bytes, row.credits + credits
    local answered = outcome ~= 'ok' and (site ~= '' or outcome == 'refused')
    if not answered then row.score = row.score + (good - row.score) * share end
    if words ~= '' and good == 0 then row.words = words end
    if outcome == 'ok' then
        row.successes = row.successes + times
        row.latency = row.latency < 0 and seconds or row.latency + (seconds - row.latency) * share
        if awake then
            local before = math.max(row.run, 0)
            row.run = before + times
            row.strikes = math.max(0, row.strikes - (math.floor(row.run / ease) - math.floor(before / ease)))
        end
    elseif answered then
        row.bans = row.bans + times
        row.run = math.max(row.run, 0)
    elseif outcome == 'banned' then
        row.bans = row.bans + times
        row.run = math.min(row.run, 0)
        if awake and bans_rest then rest(row, longest) end
    else
        row.failures = row.failures + times
        row.run = math.min(row.run, 0) - times
        if awake and row.run <= -patience then rest(row, math.min(longest, longest_after_failures)) end
    end
    local there = site ~= '' and at_site(name, site, outcome)
    if there then
        local up = now >= there.rest_until
        if outcome == 'ok' then
            if up then
                local before = math.max(there.run, 0)
                there.run = before + times
                there.strikes = math.max(0, there.strikes - (math.floor(there.run / ease) - math.floor(before / ease)))
            end
        else
            local again = there.strikes > 0 and there.run < 0
            there.run = math.min(there.run, 0) - times
            local certain = outcome == 'banned' and bans_rest
            if up and (certain or again or there.run <= -patience) then rest(there, longest) end
        end
    end
end

for name, row in pairs(rows) do
    redis.call('HSET', KEYS[1], name, struct.pack(ROW, row.tries, row.successes, row.failures, row.bans, row.bytes,
        row.credits, row.latency, row.score, row.run, row.strikes, row.rest_until, now) .. row.words)
    redis.call('ZADD', KEYS[2], now, name)
end
for key, row in pairs(at_sites) do
    redis.call('HSET', KEYS[3], key, struct.pack(AT_SITE, row.run, row.strikes, row.rest_until, now))
    redis.call('ZADD', KEYS[4], now, key)
end
redis.call('SADD', KEYS[5], ARGV[2])
return 1
