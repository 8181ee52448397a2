-- Prefix of every script about a shard: names for KEYS, and the three kinds of packed rows.
-- Rows are read into tables once, changed there, and written by flush() at the end. See keys.py for the keyspace.
-- Loaded after clock.lua, which defines `now`.

local SHARD, SITES, NUMBERS, PARKED, FREED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local META, COUNTS, URLS, QUEUE, QUEUES = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local READY, SLEEPING, HELD, WAITING, LEASED = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local DEAD, SHAPES, INCIDENTS, FILTER, HOLDERS = KEYS[16], KEYS[17], KEYS[18], KEYS[19], KEYS[20]
local LANES = KEYS[21]

local call, pack, unpack_from, byte = redis.call, struct.pack, struct.unpack, string.byte

local QUEUED, WAITS, IN_PROGRESS, DONE, UNCHANGED, DROPPED, BURIED = 1, 2, 3, 4, 5, 6, 7
local COUNTER = {'queued', 'waiting', 'leased', 'done', 'unchanged', 'dropped', 'dead'}

local SENT = 'sent, its answer unknown'  -- as in frontier/contract.py: the reason of an open task

local Q_READY, Q_EMPTY, Q_SLEEPING, Q_FULL, Q_HELD = 1, 2, 3, 4, 5

-- A server that is out of memory refuses a script's first growing write, but not those after a shrinking one.
-- Scripts that settle or hand out work call this first: leased work must be able to end.
local function insist()
    call('HDEL', SHARD, '')
end

-- batched calls ------------------------------------------------------------------------------------------------
-- A call costs more than its effect on one member of a set, or one field of a hash.

local MOST_ARGUMENTS = 500

local function in_parts(command, key, arguments)
    for first = 1, #arguments, MOST_ARGUMENTS do
        call(command, key, unpack(arguments, first, math.min(#arguments, first + MOST_ARGUMENTS - 1)))
    end
end

local batches = {ZADD = {}, ZREM = {}, HSET = {}}

-- Do this in flush(), together with others of its kind. No code may rely on it before.
local function later(command, key, one, other)
    local batch = batches[command][key]
    if not batch then
        batch = {}
        batches[command][key] = batch
    end
    batch[#batch + 1] = one
    if other then batch[#batch + 1] = other end
end

-- The values of these fields, each passed to `use` with its field; false for a missing field.
local function read_many(key, fields, use)
    for first = 1, #fields, MOST_ARGUMENTS do
        local last = math.min(#fields, first + MOST_ARGUMENTS - 1)
        local values = call('HMGET', key, unpack(fields, first, last))
        for i = first, last do use(fields[i], values[i - first + 1]) end
    end
end

-- restarts ------------------------------------------------------------------------------------------------------
-- A restarted server may have lost its last writes: leases that workers rely on, and when requests left. So nothing is
-- handed out until every worker has renewed its leases, and has learned which of them are lost; see leasing.py.

-- When tasks may be handed out again, 0 if the server has not restarted. nil: it has restarted, and no worker has yet
-- passed a `rest` in seconds, which is noted here with the run that it belongs to. A time further ahead than that rest
-- was written while the clock was ahead.
local function calm_at(rest)
    local run = string.match(call('INFO', 'server'), 'run_id:(%w+)')
    local known = call('HMGET', SHARD, 'run', 'calm', 'rest')
    if known[1] == run then
        local calm, latest = tonumber(known[2]), now + (tonumber(known[3] or rest) or math.huge)
        if calm <= latest then return calm end
        call('HSET', SHARD, 'calm', string.format('%.17g', latest))
        return latest
    end
    if not rest then return nil end
    local calm = known[1] and now + rest or 0
    call('HSET', SHARD, 'run', run, 'calm', string.format('%.17g', calm), 'rest', rest)
    return calm
end

-- counters ----------------------------------------------------------------------------------------------------

local counted = {}

local function count(name, change)
    counted[name] = (counted[name] or 0) + change
end

local function move(before, after)
    count(COUNTER[before], -1)
    count(COUNTER[after], 1)
end

-- The dropped URLs of a job are also counted by reason. Purged dead letters share one.
local function count_drop(reason, change)
    if string.sub(reason, 1, 7) == 'purged:' then reason = 'purged' end
    count('!' .. reason, change)
end

-- A link for which the queue has no room waits with this reason, and is due at NO_ROOM_DUE minus its priority: later
-- than any time, best first. See model/task.py.
local NO_ROOM, NO_ROOM_DUE, NO_ROOM_FROM = 'no room', 4e15, 2e15

local in_hands = {}

-- Change the number of leases that the worker holds.
local function hold(worker, change)
    in_hands[worker] = (in_hands[worker] or 0) + change
end

local sequence, sequence_before

local function next_sequence()
    if not sequence then
        sequence = tonumber(call('HGET', META, 'sequence') or 0)
        sequence_before = sequence
    end
    sequence = sequence + 1
    return sequence
end

-- rows of URLs ------------------------------------------------------------------------------------------------
-- `at` is the end of the lease or the time a waiting task is due; `tail` is the task itself, which only Python reads,
-- except for its beginning: a task that has a lane starts with the byte LANE_FOLLOWS, then Hc0 lane.
-- `sequence` is the place in the queue; of a row in progress it is the turn: twice its number, and one more once its
-- request has left.
-- A settled row has neither `sequence` nor `at`, and shorter counts (MOST_SHORT at most): most rows of a large job are
-- settled. Their state is written with SHORT added.

local ROW = '>BI4i4ddI4I4I4I4I4dddBc0Hc0Hc0'
local SHORT, SHORT_ROW = 16, '>BI4i4dHHI4HHddBc0Hc0Hc0'
local MOST_SHORT = 65535

local LANE_FOLLOWS = 0xC1  -- no MessagePack value starts with it

-- The lane of a task, and where the rest of its tail starts.
local function lane_of(tail)
    if byte(tail) ~= LANE_FOLLOWS then return '', 1 end
    return unpack_from('>Hc0', tail, 2)
end

-- Tables are created with all their fields at once: one that grows field by field is reallocated five times.
local function parse_row(fingerprint, text)
    local state, site, priority, sequence, id, attempts, deliveries, token, depth, max_attempts, at, created, changed,
        worker, reason, message, place
    local first = byte(text)
    if first > SHORT and first <= SHORT + BURIED then
        state, site, priority, id, attempts, deliveries, token, depth, max_attempts, created, changed, worker, reason,
            message, place = unpack_from(SHORT_ROW, text)
        state, sequence, at = state - SHORT, 0, 0
    else
        state, site, priority, sequence, id, attempts, deliveries, token, depth, max_attempts, at, created, changed,
            worker, reason, message, place = unpack_from(ROW, text)
    end
    local tail = string.sub(text, place)
    if byte(tail) == LANE_FOLLOWS then lane_of(tail) end  -- fails if a lane should follow and does not
    return {
        fingerprint = fingerprint, state = state, site = site, priority = priority, sequence = sequence, id = id,
        attempts = attempts, deliveries = deliveries, token = token, depth = depth, max_attempts = max_attempts, at = at,
        created = created, changed = changed, worker = worker, reason = reason, message = message, tail = tail,
    }
end

local written = {}  -- by fingerprint: rows that flush() is going to write

local function is_known(fingerprint)
    return written[fingerprint] ~= nil or call('HEXISTS', URLS, fingerprint) == 1
end

-- The row of a URL, or nil: if it is unknown, or if the value is not one of our rows.
local function read_row(fingerprint, text)
    text = text or written[fingerprint] or call('HGET', URLS, fingerprint)
    if not text then return nil end
    local readable, row = pcall(parse_row, fingerprint, text)
    return readable and row or nil
end

local function write_row(row)
    local worker, reason, message, text = row.worker, row.reason, row.message
    if row.state >= DONE then
        local at_most, most = math.min, MOST_SHORT
        text = pack(SHORT_ROW, row.state + SHORT, row.site, row.priority, row.id, at_most(row.attempts, most),
            at_most(row.deliveries, most), row.token, at_most(row.depth, most), at_most(row.max_attempts, most),
            row.created, row.changed, #worker, worker, #reason, reason, #message, message)
    else
        text = pack(ROW, row.state, row.site, row.priority, row.sequence, row.id, row.attempts, row.deliveries,
            row.token, row.depth, row.max_attempts, row.at, row.created, row.changed, #worker, worker, #reason, reason,
            #message, message)
    end
    written[row.fingerprint] = text .. row.tail
end

-- Best priority first: lower values in the index go first.
local function rank(priority)
    return pack('>I4', 2147483647 - priority)
end

-- lanes -------------------------------------------------------------------------------------------------------
-- A lane has a number in the job's shard, 0 for the lane ''. A queue belongs to a site and a lane: its number is lane *
-- 2^32 + site, so that the queue without a lane has the number of its site. In the indexes QUEUE and READY the lane ''
-- has no prefix; others have ABOVE and their number, and sort after it.

local SITES_OF_A_LANE = 4294967296
local ABOVE = '\255\255\255\255'  -- above every site number and every rank

local numbers_of_lanes = {[''] = 0}

local function lane_number(lane)
    local number = numbers_of_lanes[lane]
    if number then return number end
    number = tonumber(call('HGET', LANES, lane))
    if not number then
        number = call('HLEN', LANES) + 1
        call('HSET', LANES, lane, number)
    end
    numbers_of_lanes[lane] = number
    return number
end

local function prefix_of(lane)
    return lane == 0 and '' or ABOVE .. pack('>I4', lane)
end

-- Where the queues of a lane start in READY, and where they end.
local function range_of_lane(lane)
    if lane == 0 then return '-', '(' .. ABOVE end
    return '[' .. prefix_of(lane), '(' .. prefix_of(lane + 1)
end

-- The numbers of the lanes that a text names: '*' for every lane of the job, otherwise Hc0 each.
local function lanes_named(text)
    local found = {}
    if text == '*' then
        found[1] = 0
        for _, number in ipairs(call('HVALS', LANES)) do found[#found + 1] = tonumber(number) end
        return found
    end
    local place = 1
    while place <= #text do
        local lane
        lane, place = unpack_from('>Hc0', text, place)
        -- A lane that never had a task has no number yet, and nothing to give.
        local number = lane == '' and 0 or tonumber(call('HGET', LANES, lane))
        if number then found[#found + 1] = number end
    end
    return found
end

local function queue_number(row)
    if byte(row.tail) ~= LANE_FOLLOWS then return row.site end
    return lane_number((lane_of(row.tail))) * SITES_OF_A_LANE + row.site
end

local function prefix_of_queue(number)
    return number < SITES_OF_A_LANE and '' or prefix_of(math.floor(number / SITES_OF_A_LANE))
end

local function place_in_queue(row, number)
    local place = pack('>I4', row.site) .. rank(row.priority) .. pack('>I6', row.sequence) .. row.fingerprint
    return number == row.site and place or prefix_of_queue(number) .. place
end

-- sites -------------------------------------------------------------------------------------------------------
-- `pace` is the interval of the last grant, in case its worker is lost. -1 means none.
-- `answered`, `away_since`, `given_up_until`, `strikes`, `away_reason`, `away_host`: see frontier/away.py.
-- `learned`, `refused_at`, `between`: the learned pace, as in frontier/learned_pace.py; -1 and 0 mean none.
-- `latest`, `wanted`, `wanted_turn`, `since`, `offered`: how jobs take turns, see frontier/turns.py. 0 means none.
-- `wanted_priority`, `claim`, `claim_priority`, `claim_until`, `claim_run`: the priority of jobs, see there too.
-- `passed`: how many of the leases in `in_flight` owe no turn any more. `kept_until`: until then the next turn is kept
-- for a page in progress.

local SITE, TURNS, AWAY, LEARNED = '>dddI4dBc0Hc0', '>I4I4ddd', '>dddI4Hc0Hc0', '>ddd'
local CLAIMS, PASSED = '>dI4ddI4', '>I4d'
local sites = {}

local function parse_site(text)
    local next_at, rest_until, asked, in_flight, pace, holder, name, place = unpack_from(SITE, text)
    local latest, wanted, wanted_turn, since, offered = 0, 0, 0, 0, 0
    local answered, away_since, given_up_until, strikes, away_reason, away_host = 0, 0, 0, 0, '', ''
    local learned, refused_at, between = -1, 0, 0
    if place <= #text then latest, wanted, wanted_turn, since, offered, place = unpack_from(TURNS, text, place) end
    if place <= #text then
        answered, away_since, given_up_until, strikes, away_reason, away_host, place = unpack_from(AWAY, text, place)
    end
    if place <= #text then learned, refused_at, between, place = unpack_from(LEARNED, text, place) end
    local wanted_priority, claim, claim_priority, claim_until, claim_run = 0, 0, 0, 0, 0
    if place <= #text then
        wanted_priority, claim, claim_priority, claim_until, claim_run, place = unpack_from(CLAIMS, text, place)
    end
    local passed, kept_until = 0, 0
    if place <= #text then passed, kept_until = unpack_from(PASSED, text, place) end
    return {
        next_at = next_at, rest_until = rest_until, asked = asked, in_flight = in_flight, pace = pace, holder = holder,
        name = name, latest = latest, wanted = wanted, wanted_turn = wanted_turn, since = since, offered = offered,
        answered = answered, away_since = away_since, given_up_until = given_up_until, strikes = strikes,
        away_reason = away_reason, away_host = away_host, learned = learned, refused_at = refused_at, between = between,
        wanted_priority = wanted_priority, claim = claim, claim_priority = claim_priority, claim_until = claim_until,
        claim_run = claim_run, passed = passed, kept_until = kept_until, changed = false,
    }
end

local function site_of(number)
    local site = sites[number]
    if site then return site end
    site = parse_site(call('HGET', SITES, number))
    sites[number] = site
    return site
end

-- Read these sites at once; those already read stay as they are.
local function load_sites(numbers)
    read_many(SITES, numbers, function(number, text) sites[number] = sites[number] or parse_site(text) end)
end

local numbers_of_sites = {}

local function number_of(name)
    local number = numbers_of_sites[name] or tonumber(call('HGET', NUMBERS, name))
    numbers_of_sites[name] = number
    if number then return number end
    number = call('HINCRBY', SHARD, 'sites', 1)
    numbers_of_sites[name] = number
    call('HSET', NUMBERS, name, number)
    sites[number] = {
        next_at = 0, rest_until = 0, asked = -1, in_flight = 0, pace = -1, holder = '', name = name, latest = 0,
        wanted = 0, wanted_turn = 0, since = 0, offered = 0, answered = 0, away_since = 0, given_up_until = 0, strikes = 0,
        away_reason = '', away_host = '', learned = -1, between = 0,
        refused_at = 0, wanted_priority = 0, claim = 0, claim_priority = 0, claim_until = 0, claim_run = 0, passed = 0,
        kept_until = 0, changed = true,
    }
    return number
end

-- The learned interval as it counts now; -1 for none.
local function learned_now(site)
    local HOLD, GROWTH, FORGET = 300, 1800, 86400
    local quiet = now - site.refused_at
    if site.learned < 0 or quiet >= FORGET then return -1 end
    return site.learned / (1 + math.max(0, quiet - HOLD) / GROWTH)
end

-- When the next request may leave, after losing a worker that may have sent one just now.
local function after_a_loss(site)
    local interval = math.max(site.pace, site.asked, learned_now(site))
    return interval >= 0 and now + interval or 0
end

local function is_back(site)
    site.answered, site.strikes, site.given_up_until, site.changed = now, 0, 0, true
end

local is_parked  -- whether a queue of any site waits for a slot; nil until needed

-- Wake the queues of all jobs that wait for a slot of the site, or for its turn.
local function wake_parked(number)
    if is_parked == nil then is_parked = call('EXISTS', PARKED) == 1 end
    if is_parked and call('SREM', PARKED, number) == 1 then
        call('ZADD', FREED, call('HINCRBY', SHARD, 'freed', 1), number)
    end
end

-- The lease on this row has ended: free its slot, and wake the queues that wait for one.
local function free_slot(row, next_at)
    local site = site_of(row.site)
    site.in_flight = math.max(0, site.in_flight - 1)
    if row.sequence % 2 == 1 then site.passed = math.max(0, site.passed - 1) end
    site.next_at = math.max(site.next_at, next_at)
    if site.in_flight == 0 then site.holder, site.passed, site.kept_until = '', 0, 0 end
    site.changed = true
    wake_parked(row.site)
end

-- Take a lease away from a worker that may live: the site is left alone for the time that a pacer holds a request.
local function take_away(row)
    local PACER_DELAY = 5  -- seconds, as in sqlite/cleanup.py
    local site = site_of(row.site)
    if site.holder ~= '' then site.rest_until = math.max(site.rest_until, now + PACER_DELAY) end
    free_slot(row, after_a_loss(site))
end

-- queues: one for each site and lane of the job ------------------------------------------------------------------
-- `taken` is counted in the site's queue without a lane. `refused` (a byte at the end, when it is 1): a worker has
-- asked for the queue in vain since it was last served. `own_next`, `own_interval`, `own_holder` (after that byte, in the
-- queue without a lane): the bucket of a job with its own rate, the interval of its last grant, and who paces it.

local ROW_OF_QUEUE, OWN_PACE = '>Bi4ddI4I4I4I4Bc0', '>ddBc0'
local queues = {}

local function place_when_ready(queue, number)
    local place = rank(queue.priority) .. pack('>I8', queue.turn) .. pack('>I4', number % SITES_OF_A_LANE)
    return number < SITES_OF_A_LANE and place or prefix_of_queue(number) .. place
end

local function place_when_held(holder, number)
    return holder .. '\0' .. string.format('%.0f', number)
end

local function parse_queue(number, text)
    local state, priority, turn, wake_at, taken, queued, waiting, leased, held_for, place =
        unpack_from(ROW_OF_QUEUE, text)
    local own_next, own_interval, own_holder = 0, 0, ''
    if place < #text then own_next, own_interval, own_holder = unpack_from(OWN_PACE, text, place + 1) end
    local queue = {
        state = state, priority = priority, turn = turn, wake_at = wake_at, taken = taken, queued = queued,
        waiting = waiting, leased = leased, held_for = held_for, refused = byte(text, place) == 1, was = state,
        was_held_for = held_for, was_at = false, own_next = own_next, own_interval = own_interval,
        own_holder = own_holder,
    }
    if state == Q_READY then queue.was_at = place_when_ready(queue, number) end
    return queue
end

-- The queue's row, or nil.
local function find_queue(number)
    local queue = queues[number]
    if queue then return queue end
    local text = call('HGET', QUEUES, number)
    if not text then return nil end
    queue = parse_queue(number, text)
    queues[number] = queue
    return queue
end

-- Read these queues at once, if they exist.
local function load_queues(numbers)
    read_many(QUEUES, numbers, function(number, text)
        queues[number] = queues[number] or text and parse_queue(number, text) or nil
    end)
end

local function queue_of(number)
    local queue = find_queue(number)
    if queue then return queue end
    queue = {state = Q_EMPTY, priority = 0, turn = math.floor(now * 1000000), wake_at = 0, taken = 0, queued = 0,
        waiting = 0, leased = 0, held_for = '', refused = false, was = Q_EMPTY, was_held_for = '', was_at = false,
        own_next = 0, own_interval = 0, own_holder = ''}
    queues[number] = queue
    return queue
end

-- A task of this priority has joined the queue.
local function feed(queue, priority)
    if queue.state == Q_EMPTY then
        queue.state = Q_READY
        queue.priority = priority
    else
        queue.priority = math.max(queue.priority, priority)
    end
end

local function enqueue(row)
    row.sequence = next_sequence()
    local number = queue_number(row)
    later('ZADD', QUEUE, 0, place_in_queue(row, number))
    local queue = queue_of(number)
    queue.queued = queue.queued + 1
    feed(queue, row.priority)
end

local function note(fingerprint, what)
    local known = call('HGET', INCIDENTS, fingerprint)
    local list = known and cmsgpack.unpack(known) or {}
    list[#list + 1] = {now, what}
    call('HSET', INCIDENTS, fingerprint, cmsgpack.pack(list))
end

-- writing the changed rows -----------------------------------------------------------------------------------------

-- The later parts of a site's row, if they say anything: for a site that was never visited they do not.
local function what_else(site)
    local text = ''
    if site.passed ~= 0 or site.kept_until ~= 0 then text = pack(PASSED, site.passed, site.kept_until) end
    if text ~= '' or site.claim ~= 0 or site.wanted_priority ~= 0 then
        text = pack(CLAIMS, site.wanted_priority, site.claim, site.claim_priority, site.claim_until, site.claim_run)
            .. text
    end
    if text ~= '' or site.learned >= 0 or site.refused_at ~= 0 then
        text = pack(LEARNED, site.learned, site.refused_at, site.between) .. text
    end
    if text ~= '' or site.answered ~= 0 or site.away_since ~= 0 or site.given_up_until ~= 0 or site.strikes ~= 0
        or site.away_reason ~= '' or site.away_host ~= '' then
        text = pack(AWAY, site.answered, site.away_since, site.given_up_until, site.strikes, #site.away_reason,
            site.away_reason, #site.away_host, site.away_host) .. text
    end
    if text ~= '' or site.latest ~= 0 or site.wanted ~= 0 then
        text = pack(TURNS, site.latest, site.wanted, site.wanted_turn, site.since, site.offered) .. text
    end
    return text
end

local function flush()
    -- Growing writes come first: a server that is out of memory refuses them, and then nothing is written.
    for fingerprint, text in pairs(written) do later('HSET', URLS, fingerprint, text) end
    for number, queue in pairs(queues) do
        local at = queue.state == Q_READY and place_when_ready(queue, number)
        if queue.was_at ~= at then
            if queue.was_at then later('ZREM', READY, queue.was_at) end
            if at then later('ZADD', READY, 0, at) end
        end
        if queue.state == Q_SLEEPING then
            later('ZADD', SLEEPING, queue.wake_at, number)
        elseif queue.was == Q_SLEEPING then
            later('ZREM', SLEEPING, number)
        end
        if queue.was == Q_HELD and (queue.state ~= Q_HELD or queue.held_for ~= queue.was_held_for) then
            later('ZREM', HELD, place_when_held(queue.was_held_for, number))
        end
        if queue.state == Q_HELD then later('ZADD', HELD, 0, place_when_held(queue.held_for, number)) end
        local text = pack(ROW_OF_QUEUE, queue.state, queue.priority, queue.turn, queue.wake_at, queue.taken,
            queue.queued, queue.waiting, queue.leased, #queue.held_for, queue.held_for)
        if queue.own_interval > 0 then
            text = text .. (queue.refused and '\1' or '\0')
                .. pack(OWN_PACE, queue.own_next, queue.own_interval, #queue.own_holder, queue.own_holder)
        elseif queue.refused then
            text = text .. '\1'
        end
        later('HSET', QUEUES, number, text)
    end
    for number, site in pairs(sites) do
        if site.changed then
            later('HSET', SITES, number,
                pack(SITE, site.next_at, site.rest_until, site.asked, site.in_flight, site.pace, #site.holder,
                    site.holder, #site.name, site.name) .. what_else(site))
        end
    end
    for _, command in ipairs({'HSET', 'ZREM', 'ZADD'}) do
        for key, arguments in pairs(batches[command]) do in_parts(command, key, arguments) end
    end
    for name, change in pairs(counted) do
        if change ~= 0 then call('HINCRBY', COUNTS, name, change) end
    end
    for worker, change in pairs(in_hands) do
        if call('HINCRBY', HOLDERS, worker, change) <= 0 then call('HDEL', HOLDERS, worker) end
    end
    if sequence and sequence ~= sequence_before then call('HSET', META, 'sequence', sequence) end
end

local function counter(name)
    return tonumber(call('HGET', COUNTS, name) or 0) + (counted[name] or 0)
end
