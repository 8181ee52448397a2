-- Hand out tasks of the named queues, each site's only as far as its terms allow, with the site's slot and rate token.
-- ARGV: time, worker, n, lease seconds, limit (-1: none), used elsewhere, beyond ('' or a priority), lanes (see
-- lanes_named), queues, priority of the job.
-- `queues` is packed: I4 lane, I4 site, d interval (-1: no rate), I4 burst, I4 concurrency (0: unlimited), d the job's
-- own interval (-1: none), I4 its own concurrency (0: none), B 1 if the site rests by the settings, best queue first.
-- `beyond` is the priority of the best queue that is not named: nothing below it is given.
-- Returns {more, lease, lease, ...}; more is 1 if a queue of these lanes is still ready. A lease is packed, see
-- rows.py.

local REST_LOOK = 1  -- as in frontier/politeness.py

insist()
local worker, wanted, duration = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, beyond = tonumber(ARGV[5]), tonumber(ARGV[7])
local job, calm = call('HMGET', META, 'state', 'paused'), calm_at()
if job[1] ~= 'running' or job[2] == '1' or not calm or calm > now then return {0} end
if limit >= 0 then
    local used = counter('done') + counter('unchanged') + counter('dead') + counter('leased') - counter('redirected')
    wanted = math.min(wanted, limit - used - tonumber(ARGV[6]))
end

-- The sites, each with its terms and with its named queues.
local named, by_number, place, all_sites, all_queues = {}, {}, 1, {}, {}
while place <= #ARGV[9] do
    local lane, site, interval, burst, concurrency, own, own_concurrency, rests
    lane, site, interval, burst, concurrency, own, own_concurrency, rests, place =
        unpack_from('>I4I4dI4I4dI4B', ARGV[9], place)
    local terms = by_number[site]
    if not terms then
        terms = {number = site, interval = interval, burst = burst, concurrency = concurrency, own = own,
            own_concurrency = own_concurrency, rests = rests == 1, all = {}}
        named[#named + 1], by_number[site], all_sites[#all_sites + 1] = terms, terms, site
    end
    local queue = lane * SITES_OF_A_LANE + site
    all_queues[#all_queues + 1] = queue
    terms.all[#terms.all + 1] = {prefix = prefix_of(lane), number = queue}
end
load_sites(all_sites)
load_queues(all_queues)
for _, terms in ipairs(named) do
    for _, entry in ipairs(terms.all) do entry.queue = queue_of(entry.number) end
end

-- Note which queues of the site are ready, and the best priority among them. False if no queue is ready.
local function look_at(terms)
    local all = terms.all
    if #all == 1 then
        terms.ready, terms.best = all, all[1].queue.priority
        return all[1].queue.state == Q_READY
    end
    terms.ready, terms.best = {}, nil
    for _, entry in ipairs(all) do
        if entry.queue.state == Q_READY then
            terms.ready[#terms.ready + 1] = entry
            if not terms.best or entry.queue.priority > terms.best then terms.best = entry.queue.priority end
        end
    end
    return terms.best ~= nil
end

local function put_to_sleep(ready, till, refused)
    for _, entry in ipairs(ready) do
        local queue = entry.queue
        queue.state, queue.wake_at, queue.refused = Q_SLEEPING, till, refused or queue.refused
    end
end

local function park(ready, number, state, holder)
    for _, entry in ipairs(ready) do
        entry.queue.state, entry.queue.held_for, entry.queue.refused = state, holder, true
    end
    call('SADD', PARKED, number)
end

-- seconds, as in frontier/politeness.py and frontier/turns.py
local TURN, GIVE_WAY, LONGEST = 5, 0.5, 15
local ONE_IN, CLAIM, LOOK, NOTED = 10, 1, 0.1, 1
local HEAD_START = 0.02

local served, others = {}, nil
if ARGV[8] ~= '*' then
    for _, lane in ipairs(lanes_named(ARGV[8])) do served[lane] = true end
end

-- Whether a lane of other workers gets its turn at the site now: one that was refused, and was served before ours. A
-- lane that could be served but is not requested while ours pause no longer has a waiting worker.
local function must_give_way(terms)
    if ARGV[8] == '*' then return false end
    local before = (now - TURN) * 1000000
    for _, entry in ipairs(terms.ready) do before = math.min(before, entry.queue.turn - 1) end
    if not others then
        others = {}
        for _, lane in ipairs(lanes_named('*')) do
            if not served[lane] then others[#others + 1] = lane end
        end
    end
    local found = false
    for _, lane in ipairs(others) do
        local queue = find_queue(lane * SITES_OF_A_LANE + terms.number)
        if queue and queue.refused and queue.state ~= Q_EMPTY and queue.turn <= before then
            found = true
            if queue.state == Q_READY then queue.refused = false end
        end
    end
    return found
end

-- How jobs take turns at a site, and which goes first, as in frontier/turns.py.
local job_number, priority = tonumber(string.match(META, '(%d+):meta$')), tonumber(ARGV[10])

local function is_left(site)
    if site.claim == 0 or site.claim == job_number or site.claim_priority <= priority then return false end
    return site.claim_until - CLAIM - HEAD_START <= now and now < site.claim_until and site.claim_run < ONE_IN - 1
end

-- `back_at`: when the job can be served again; nil: it has no more to do here, or there is room for others too.
local function claim_after(site, back_at, given)
    if site.claim ~= 0 and site.claim_until <= now and site.claim ~= job_number then
        site.claim, site.changed = 0, true
    end
    if site.claim ~= 0 and site.claim_priority > priority then
        if given > 0 then site.claim_run, site.changed = 0, true end
    elseif not back_at then
        if site.claim == job_number then site.claim, site.changed = 0, true end
    else
        local run = site.claim ~= 0 and site.claim_priority == priority and site.claim_run or 0
        site.claim, site.claim_priority, site.claim_until = job_number, priority, back_at + CLAIM
        site.claim_run, site.changed = run + given, true
    end
end

-- Note the claim of a job that must wait, if other jobs come here too.
local function claim_while_waiting(site, back_at)
    if site.latest ~= job_number or site.wanted ~= 0 then claim_after(site, back_at, 0) end
end

local function note_refusal(site, number, back_at)
    if site.latest ~= 0 and site.latest ~= job_number then
        local served_at = 0
        for _, lane in ipairs(lanes_named('*')) do
            local queue = find_queue(lane * SITES_OF_A_LANE + number)
            if queue then served_at = math.max(served_at, queue.turn / 1000000) end
        end
        if served_at > now then served_at = 0 end  -- by a clock that was set back since
        if site.wanted == 0 then
            site.wanted, site.wanted_turn, site.since, site.offered = job_number, served_at, now, 0
            site.wanted_priority, site.changed = priority, true
        elseif site.wanted ~= job_number and served_at < site.wanted_turn then
            site.wanted, site.wanted_turn, site.offered = job_number, served_at, 0
            site.wanted_priority, site.changed = priority, true
        end
    end
    claim_while_waiting(site, back_at)
end

-- The job must wait for the site's pace, and so must the others: note who goes first.
local function contend(site, number, back_at)
    if site.claim ~= 0 and site.claim ~= job_number and site.claim_priority > priority then
        note_refusal(site, number, back_at)
    else
        claim_while_waiting(site, back_at)
    end
end

-- Whether the site is left to another job that wants it. `free`: that job would not be refused.
local function makes_way(site, free)
    if site.wanted == 0 or site.wanted == job_number then return false end
    if site.since > now then  -- the clock was set back
        site.since, site.offered, site.changed = now, 0, true
        return false
    end
    local is_its_share = site.claim ~= 0 and site.claim_run >= ONE_IN - 1 and site.wanted_priority < site.claim_priority
    if is_its_share then  -- at once
    elseif site.wanted_priority < priority then
        if now - site.since >= NOTED then site.since, site.offered, site.changed = now, 0, true end
        return false
    elseif site.wanted_priority == priority and now - site.since < TURN then
        return false
    end
    if not free then
        if now - site.since >= TURN + LONGEST then
            site.wanted, site.changed = 0, true
            return false
        end
        site.changed = site.changed or site.offered ~= 0
        site.offered = 0
    elseif site.offered == 0 or site.offered > now then
        site.offered, site.changed = now, true
    elseif now - site.offered >= GIVE_WAY then
        site.wanted, site.changed = 0, true  -- no job waits for it any more
        return false
    end
    return true
end

-- The job's leases at the site.
local function own_leases(number)
    local leased = 0
    for _, lane in ipairs(lanes_named('*')) do
        local queue = find_queue(lane * SITES_OF_A_LANE + number)
        if queue then leased = leased + queue.leased end
    end
    return leased
end

local FIRST_TURN = 2  -- see prelude.lua
local TOO_FAR = 3600  -- seconds, as in leasing.py
local answer = {0}

-- A task of a site that is given up takes no place in its bucket: no request is expected.
local function give(row, site, interval, burst, buries, own)
    row.state, row.token, row.deliveries = IN_PROGRESS, row.token + 1, row.deliveries + 1
    row.worker, row.at, row.changed, row.sequence = worker, now + duration, now, FIRST_TURN
    write_row(row)
    later('ZADD', LEASED, row.at, row.fingerprint)
    hold(worker, 1)
    local ahead, gap = 0, 0
    if interval >= 0 then
        ahead = math.max(site.next_at, now) + interval - now
        if not buries then site.next_at = now + ahead end
    end
    if own then  -- the worker keeps the slower pace of the job, and so that of the site
        gap = own.own_interval - math.max(interval, 0)
        local next_at = math.max(math.max(own.own_next, now) + own.own_interval, now + ahead + gap)
        ahead, interval = next_at - now, own.own_interval
        if not buries then own.own_next = next_at end
    end
    local given_up = site.given_up_until > now
    local away = (site.strikes > 0 or given_up) and site or {away_since = 0, away_reason = '', away_host = ''}
    answer[#answer + 1] = pack('>c16di4I4I4I4I4I4dddI4ddB', row.fingerprint, row.id, row.priority, row.depth,
        row.attempts, row.max_attempts, row.token, row.deliveries, row.created, row.at, interval, burst, ahead, gap,
        row.reason == SENT and 1 or 0)
        .. pack('>Hc0', #site.name, site.name)
        .. pack('>dBHc0Hc0', away.away_since, given_up and 1 or 0, #away.away_reason, away.away_reason, #away.away_host,
            away.away_host)
        .. row.tail
end

-- An entry of the queue without one of our rows behind it was not written by us: it is never handed out.
local function bury_stranger(fingerprint, number, priority)
    write_row({
        fingerprint = fingerprint, state = BURIED, site = number, priority = priority, sequence = 0, id = 0,
        attempts = 0, deliveries = 0, token = 0, depth = 0, max_attempts = 0, at = 0, created = now, changed = now,
        worker = '', reason = 'unreadable', message = 'What stood in the queue here is not a task of ours.', tail = '',
    })
    call('ZADD', DEAD, now, fingerprint)
    move(QUEUED, BURIED)
end

local gone = {}  -- entries of the queue that are still to be removed

local function remove_gone()
    in_parts('ZREM', QUEUE, gone)
    gone = {}
end

-- Up to n entries of the site's queue in a lane, best first, without the prefix of the lane.
local function places(entry, number, n)
    local prefix = entry.prefix
    local members = call('ZRANGEBYLEX', QUEUE, '[' .. prefix .. pack('>I4', number),
        '(' .. prefix .. pack('>I4', number + 1), 'LIMIT', 0, n)
    if prefix == '' then return members end
    for i, member in ipairs(members) do members[i] = string.sub(member, #prefix + 1) end
    return members
end

local function priority_at(place)
    return 2147483647 - unpack_from('>I4', place, 5)
end

-- Of the next entries of several lanes, the lane whose task goes first.
local function first_of(ready)
    local first = ready[1]
    for _, entry in ipairs(ready) do
        local place, best = entry.places[entry.gone + 1], first.places[first.gone + 1]
        if place and (not best or place < best) then first = entry end
    end
    return first
end

-- Take up to n tasks of one site if it allows; otherwise put its queues where they will be woken from.
local function serve(terms, n, floor)
    local number, ready = terms.number, terms.ready
    local site = site_of(number)
    local rest_until, asked = site.rest_until, math.max(site.asked, learned_now(site))
    if terms.rests then rest_until = math.max(rest_until, now + REST_LOOK) end
    if rest_until > now then return put_to_sleep(ready, rest_until, true) end
    local buries = site.given_up_until > now and site.away_host ~= ''
    local most = site.strikes > 0 and 1 or terms.concurrency  -- one task at a time finds out whether the site is back
    if most > 0 then
        n = math.min(n, most - site.in_flight)
        if n <= 0 then
            note_refusal(site, number, now)
            return park(ready, number, Q_FULL, '')
        end
    end
    local interval, burst = terms.interval, terms.burst
    if asked >= 0 then interval, burst = math.max(interval, asked), 1 end
    local own = terms.own > math.max(interval, 0) and queue_of(number)  -- else the site itself asks for more
    if terms.own_concurrency > 0 or own and interval < 0 then
        local ours = own_leases(number)
        if terms.own_concurrency > 0 then n = math.min(n, terms.own_concurrency - ours) end
        if n <= 0 then return park(ready, number, Q_FULL, '') end
        -- One pacer at a time spaces the requests of the job exactly.
        if own and ours > 0 and own.own_holder ~= worker then return park(ready, number, Q_HELD, own.own_holder) end
    end
    if interval >= 0 then
        if site.kept_until > now and site.kept_until <= now + interval + TOO_FAR then
            return put_to_sleep(ready, site.kept_until, true)
        end
        if site.in_flight > site.passed and site.holder ~= worker then
            note_refusal(site, number, now)
            return park(ready, number, Q_HELD, site.holder)
        end
        -- No request was so far ahead: the server's clock was.
        if site.next_at > now + interval * burst + TOO_FAR then site.next_at = now end
        -- The last request before a restart may be lost.
        site.next_at = math.max(site.next_at, calm + interval * burst)
        local turn = site.next_at - (burst - 1) * interval - HEAD_START
        if not buries then
            if turn > now then
                contend(site, number, turn)
                return put_to_sleep(ready, turn, true)
            end
            n = math.min(n, burst)
            if interval > 0 then n = math.min(n, math.floor((now - turn) / interval) + 1) end
        end
    end
    if own then
        own.own_interval, own.own_holder = terms.own, worker
        if own.own_next > now + terms.own * burst + TOO_FAR then own.own_next = now end
        if calm > 0 then own.own_next = math.max(own.own_next, calm + terms.own * burst) end
        local turn = own.own_next - (burst - 1) * terms.own - HEAD_START
        if not buries then
            if turn > now then return put_to_sleep(ready, turn, true) end
            n = math.min(n, burst, math.floor((now - turn) / terms.own) + 1)
        end
    end
    if is_left(site) then
        note_refusal(site, number, now)
        return put_to_sleep(ready, now + LOOK, false)
    end
    if makes_way(site, interval < 0 or site.in_flight == site.passed) then
        claim_after(site, now, 0)
        return put_to_sleep(ready, now + (site.wanted_priority < priority and LOOK or GIVE_WAY), false)
    end
    if site.claim ~= 0 and site.claim_priority > priority and site.claim_until > now then n = 1 end  -- its share
    for _, entry in ipairs(ready) do
        entry.places, entry.gone, entry.given = places(entry, number, n + 1), 0, 0
    end
    local given = 0
    while given < n do
        local entry = #ready == 1 and ready[1] or first_of(ready)
        local place = entry.places[entry.gone + 1]
        if not place or (floor and priority_at(place) < floor) then break end
        gone[#gone + 1] = entry.prefix .. place
        entry.gone = entry.gone + 1
        local fingerprint = string.sub(place, 15)
        local row = read_row(fingerprint)
        if row and row.state == QUEUED then
            give(row, site, interval, burst, buries, own)
            given, entry.given = given + 1, entry.given + 1
        else
            bury_stranger(fingerprint, number, priority_at(place))
        end
    end
    for _, entry in ipairs(ready) do
        local queue, rest = entry.queue, entry.places[entry.gone + 1]
        -- All the entries that were read are foreign: there may be tasks behind them.
        if not rest and entry.gone > entry.given then
            remove_gone()
            rest = places(entry, number, 1)[1]
        end
        queue.state = rest and Q_READY or Q_EMPTY
        queue.priority = rest and priority_at(rest) or 0
        queue.turn, queue.refused = math.floor(now * 1000000), false
        queue.queued, queue.leased = queue.queued - entry.gone, queue.leased + entry.given
    end
    site.in_flight, site.pace, site.changed = site.in_flight + given, interval, true
    site.holder = interval >= 0 and worker or ''
    local left = false
    for _, entry in ipairs(ready) do left = left or entry.queue.state == Q_READY end
    local back_at
    if left and interval >= 0 then
        back_at = site.next_at - (burst - 1) * interval
        if own then back_at = math.max(back_at, own.own_next - (burst - 1) * terms.own) end
    elseif left and most > 0 and site.in_flight >= most then
        back_at = now
    end
    claim_after(site, back_at, given)
    if given > 0 then
        site.latest = job_number
        if site.wanted == job_number then site.wanted = 0 end
    end
    count('queued', -given)
    count('leased', given)
    wanted = wanted - given
end

while wanted > 0 do
    remove_gone()  -- a site may be served again
    local able, best = {}, nil
    for _, terms in ipairs(named) do
        if look_at(terms) then
            able[#able + 1] = terms
            if not best or terms.best > best then best = terms.best end
        end
    end
    if #able == 0 or (beyond and best < beyond) then break end
    local tied = {}
    for _, terms in ipairs(able) do
        if terms.best == best then tied[#tied + 1] = terms end
    end
    -- A lone site may give tasks below its best priority at once: no other site could go before them.
    local floor = best
    if #able == 1 then floor = beyond end
    local share = math.max(1, math.floor(wanted / #tied))
    for _, terms in ipairs(tied) do
        if wanted <= 0 then break end
        if must_give_way(terms) then
            put_to_sleep(terms.ready, now + GIVE_WAY, false)
        else
            serve(terms, math.min(share, wanted), floor)
        end
    end
end
remove_gone()
flush()
if ARGV[8] == '*' then
    answer[1] = call('ZCARD', READY) > 0 and 1 or 0
    return answer
end
for lane in pairs(served) do
    local from, till = range_of_lane(lane)
    if answer[1] == 0 and call('ZRANGEBYLEX', READY, from, till, 'LIMIT', 0, 1)[1] then answer[1] = 1 end
end
return answer
