-- Hand out tasks of the sites named, each only as far as its terms allow, with the site's slot and rate token.
-- ARGV: time, worker, n, lease seconds, limit (-1: none), used elsewhere, beyond ('' or a priority), sites.
-- `sites` is packed: I4 number, d interval (-1: no rate), I4 burst, I4 concurrency (0: any), best site first.
-- `beyond` is the priority of the best queue that is not named: nothing below it is given.
-- Returns {more, lease, lease, ...}; more is 1 when a queue is still ready. A lease is packed, see rows.py.

insist()
local worker, wanted, duration = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, beyond = tonumber(ARGV[5]), tonumber(ARGV[7])
if call('HGET', META, 'state') ~= 'running' then return {0} end
if limit >= 0 then
    local used = counter('done') + counter('unchanged') + counter('dead') + counter('leased') - counter('redirected')
    wanted = math.min(wanted, limit - used - tonumber(ARGV[6]))
end

local named, place = {}, 1
while place <= #ARGV[8] do
    local terms = {}
    terms.number, terms.interval, terms.burst, terms.concurrency, place = unpack_from('>I4dI4I4', ARGV[8], place)
    named[#named + 1] = terms
end

local function put_to_sleep(queue, till)
    queue.state, queue.wake_at = Q_SLEEPING, till
end

local function park(queue, number, state, holder)
    queue.state, queue.held_for = state, holder
    call('SADD', PARKED, number)
end

local HEAD_START = 0.02  -- seconds, as in frontier/politeness.py
local answer = {0}

local function give(row, site, interval, burst)
    row.state, row.token, row.deliveries = IN_HAND, row.token + 1, row.deliveries + 1
    row.worker, row.at, row.changed = worker, now + duration, now
    write_row(row)
    call('ZADD', LEASED, row.at, row.fingerprint)
    hold(worker, 1)
    local ahead = 0
    if interval >= 0 then
        site.next_at = math.max(site.next_at, now) + interval
        ahead = site.next_at - now
    end
    answer[#answer + 1] = pack('>c16di4I4I4I4I4I4dddI4d', row.fingerprint, row.id, row.priority, row.depth,
        row.attempts, row.max_attempts, row.token, row.deliveries, row.created, row.at, interval, burst, ahead)
        .. pack('>Hc0', #site.name, site.name) .. row.tail
end

-- What stands in the queue without a row of ours behind it was not written by us: it is never worked on.
local function bury_stranger(fingerprint, number, priority)
    write_row({
        fingerprint = fingerprint, state = BURIED, site = number, priority = priority, sequence = 0, id = 0,
        attempts = 0, deliveries = 0, token = 0, depth = 0, max_attempts = 0, at = 0, created = now, changed = now,
        worker = '', reason = 'unreadable', message = 'What stood in the queue here is not a task of ours.', tail = '',
    })
    call('ZADD', DEAD, now, fingerprint)
    move(QUEUED, BURIED)
end

-- Take up to n tasks of one site if it allows; else put its queue where it will be woken from.
local function serve(terms, n, floor)
    local number = terms.number
    local site, queue = site_of(number), queue_of(number)
    if site.rest_until > now then return put_to_sleep(queue, site.rest_until) end
    if terms.concurrency > 0 then
        n = math.min(n, terms.concurrency - site.in_flight)
        if n <= 0 then return park(queue, number, Q_FULL, '') end
    end
    local interval, burst = terms.interval, terms.burst
    if site.asked >= 0 then interval, burst = math.max(interval, site.asked), 1 end
    if interval >= 0 then
        if site.in_flight > 0 and site.holder ~= worker then return park(queue, number, Q_HELD, site.holder) end
        local turn = site.next_at - (burst - 1) * interval - HEAD_START
        if turn > now then return put_to_sleep(queue, turn) end
        n = math.min(n, burst)
        if interval > 0 then n = math.min(n, math.floor((now - turn) / interval) + 1) end
    end
    local from, till = '[' .. pack('>I4', number), '(' .. pack('>I4', number + 1)
    local members = call('ZRANGEBYLEX', QUEUE, from, till, 'LIMIT', 0, n + 1)
    local given, strangers = 0, 0
    for _, member in ipairs(members) do
        local priority = 2147483647 - unpack_from('>I4', member, 5)
        if given == n or (floor and priority < floor) then break end
        call('ZREM', QUEUE, member)
        local fingerprint = string.sub(member, 15)
        local row = read_row(fingerprint)
        if row and row.state == QUEUED then
            give(row, site, interval, burst)
            given = given + 1
        else
            bury_stranger(fingerprint, number, priority)
            strangers = strangers + 1
        end
    end
    local rest = members[given + strangers + 1]
    -- Strangers took the places of all that were read: there may be tasks behind them.
    if not rest and strangers > 0 then rest = call('ZRANGEBYLEX', QUEUE, from, till, 'LIMIT', 0, 1)[1] end
    queue.state = rest and Q_READY or Q_EMPTY
    queue.priority = rest and 2147483647 - unpack_from('>I4', rest, 5) or 0
    queue.turn = math.floor(now * 1000000)
    queue.queued, queue.leased = queue.queued - given - strangers, queue.leased + given
    site.in_flight, site.pace, site.changed = site.in_flight + given, interval, true
    site.holder = interval >= 0 and worker or ''
    count('queued', -given)
    count('leased', given)
    wanted = wanted - given
end

while wanted > 0 do
    local ready, best = {}, nil
    for _, terms in ipairs(named) do
        local queue = queue_of(terms.number)
        if queue.state == Q_READY then
            ready[#ready + 1] = terms
            if not best or queue.priority > best then best = queue.priority end
        end
    end
    if #ready == 0 or (beyond and best < beyond) then break end
    local tied = {}
    for _, terms in ipairs(ready) do
        if queue_of(terms.number).priority == best then tied[#tied + 1] = terms end
    end
    -- A lone queue may give tasks below its best priority at once: nobody else could go before them.
    local floor = best
    if #ready == 1 then floor = beyond end
    local share = math.max(1, math.floor(wanted / #tied))
    for _, terms in ipairs(tied) do
        if wanted <= 0 then break end
        serve(terms, math.min(share, wanted), floor)
    end
end
flush()
answer[1] = call('ZCARD', READY) > 0 and 1 or 0
return answer
