-- Bring the shard up to date and report which tasks could be handed out. ARGV: time, worker, n, max_deliveries, lanes
-- (see lanes_named), the longest time in seconds that a lease may last, how long nothing is handed out after a restart
-- of the server, how many URLs the queue of this shard may hold (-1: unlimited), gone workers...
--
-- Expired leases and leases of dead workers are taken back; due tasks join their queues; sites whose bucket filled up,
-- whose slots were freed or which this worker holds itself become ready.
-- Returns {state, sealed, paused, counters, wait, beyond, when the last restart is over, turn of the best queue,
-- queues}.
-- `queues` are the best ready ones of these lanes, packed: I4 lane, I4 site, i4 priority each. A paused job names none.

insist()
local AT_ONCE = 500
local worker, wanted, max_deliveries, longest = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])

local function take_back(fingerprint, fate)
    local row = read_row(fingerprint)
    call('ZREM', LEASED, fingerprint)
    if not row or row.state ~= IN_PROGRESS then return end
    local queue, site = queue_of(queue_number(row)), site_of(row.site)
    queue.leased = queue.leased - 1
    hold(row.worker, -1)
    free_slot(row, after_a_loss(site))
    note(fingerprint, row.worker .. ' ' .. fate .. '; delivery ' .. row.deliveries .. ' of ' .. max_deliveries)
    -- Delivered once more after that, the worker buries it and calls the spider's errback; unless that worker dies,
    -- too.
    if row.deliveries > max_deliveries then
        row.state, row.reason = BURIED, 'poison'
        row.message = row.deliveries .. ' workers in a row died or hung while they had this page.'
        call('ZADD', DEAD, now, fingerprint)
    else
        row.state = QUEUED
        enqueue(row)
    end
    row.worker, row.at, row.changed = '', 0, now
    move(IN_PROGRESS, row.state)
    write_row(row)
    local own = find_queue(row.site)
    if own and own.own_interval > 0 then own.own_next = math.max(own.own_next, now + own.own_interval) end
end

for _, fingerprint in ipairs(call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, AT_ONCE)) do
    take_back(fingerprint, 'stopped renewing its lease')
end
-- A lease that ends later than any can was given while the server's clock was ahead: it is over.
for _, fingerprint in ipairs(call('ZRANGEBYSCORE', LEASED, now + longest, '+inf', 'LIMIT', 0, AT_ONCE)) do
    take_back(fingerprint, 'stopped renewing its lease')
end
if #ARGV > 8 then
    local gone = {}
    for i = 9, #ARGV do gone[ARGV[i]] = true end
    for _, fingerprint in ipairs(call('ZRANGE', LEASED, 0, -1)) do
        local row = read_row(fingerprint)
        if row and gone[row.worker] then take_back(fingerprint, 'died') end
    end
end

local function queue_up(fingerprint)
    local row = read_row(fingerprint)
    call('ZREM', WAITING, fingerprint)
    if row and row.state == WAITS then
        local queue = queue_of(queue_number(row))
        queue.waiting = queue.waiting - 1
        if row.at >= NO_ROOM_FROM then
            row.reason = ''
            count('postponed', -1)
        end
        row.state, row.at = QUEUED, 0
        enqueue(row)
        write_row(row)
        move(WAITS, QUEUED)
    end
end

for _, fingerprint in ipairs(call('ZRANGEBYSCORE', WAITING, '-inf', now, 'LIMIT', 0, AT_ONCE)) do queue_up(fingerprint) end

-- Links that waited for room. Each shard keeps to its share of the bound, so that none waits for another.
local postponed, bound = counter('postponed'), tonumber(ARGV[8])
if postponed > 0 then
    local room = AT_ONCE
    if bound >= 0 then
        local active = counter('queued') + counter('waiting') - postponed
        room = math.min(room, math.max(bound - active, active == 0 and 1 or 0))
    end
    for _, fingerprint in
        ipairs(room > 0 and call('ZRANGEBYSCORE', WAITING, NO_ROOM_FROM, '+inf', 'LIMIT', 0, room) or {}) do
        queue_up(fingerprint)
    end
end

local function wake(number)
    local queue = queue_of(number)
    if queue.state ~= Q_EMPTY then queue.state, queue.wake_at, queue.held_for = Q_READY, 0, '' end
end

for _, number in ipairs(call('ZRANGEBYSCORE', SLEEPING, '-inf', now, 'LIMIT', 0, AT_ONCE)) do
    wake(tonumber(number))
end
for _, member in ipairs(call('ZRANGEBYLEX', HELD, '[' .. worker .. '\0', '(' .. worker .. '\1', 'LIMIT', 0, AT_ONCE)) do
    wake(tonumber(string.sub(member, #worker + 2)))
end
local seen = call('HGET', META, 'freed') or '0'
local freed = call('ZRANGEBYSCORE', FREED, '(' .. seen, '+inf', 'WITHSCORES', 'LIMIT', 0, AT_ONCE)
local lanes = #freed > 0 and lanes_named('*') or {}
for i = 1, #freed, 2 do
    for _, lane in ipairs(lanes) do
        local number = lane * SITES_OF_A_LANE + tonumber(freed[i])
        local queue = find_queue(number)
        if queue and (queue.state == Q_FULL or queue.state == Q_HELD) then wake(number) end
    end
end
if #freed > 0 then call('HSET', META, 'freed', freed[#freed]) end
flush()
for i = 9, #ARGV do call('HDEL', HOLDERS, ARGV[i]) end

local function first_of(key)
    local found = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local at = found[2] and tonumber(found[2]) or math.huge
    return at < NO_ROOM_FROM and at or math.huge
end

local state = call('HMGET', META, 'state', 'sealed', 'paused')
local chance, calm = math.min(first_of(SLEEPING), first_of(WAITING), first_of(LEASED)), calm_at(tonumber(ARGV[7]))
if calm > now then chance, wanted = math.min(chance, calm), 0 end
if state[3] == '1' then wanted = 0 end
local names = {'queued', 'waiting', 'leased', 'done', 'unchanged', 'dead', 'redirected', 'discovered'}
local counters = call('HMGET', COUNTS, unpack(names))
for i = 1, #names do counters[i] = tonumber(counters[i] or 0) end

local answer = {
    state[1] or '', state[2] or '', state[3] or '', counters,
    chance == math.huge and '' or string.format('%.6f', math.max(0, chance - now)), '',
    string.format('%.6f', calm), '0',
}

-- The ready queues of each lane, best first, as far as they could be named; `place` is that of the next one.
local ready = {}

local function step(list)
    list.at = list.at + 1
    local member = list.members[list.at]
    list.place = member and list.lane > 0 and string.sub(member, 9) or member
end

for _, lane in ipairs(wanted > 0 and lanes_named(ARGV[5]) or {}) do
    local from, till = range_of_lane(lane)
    local list = {lane = lane, at = 0, members = call('ZRANGEBYLEX', READY, from, till, 'LIMIT', 0, wanted + 1)}
    ready[#ready + 1] = list
    step(list)
end

local function best_of(lists)
    local best = lists[1]
    for i = 2, #lists do
        local list = lists[i]
        if list.place and (not best.place or list.place < best.place) then best = list end
    end
    return best and best.place and best
end

-- As many sites as wanted, each with all its equally good lanes; and how good the next site is.
local named, told, queues_named, list = 0, {}, {}, best_of(ready)
while list do
    local inverse, turn, site = unpack_from('>I4I8I4', list.place)
    if not told[site] then
        told[site], named = true, named + 1
    end
    if named > wanted then
        answer[6] = tostring(2147483647 - inverse)
        break
    end
    if #queues_named == 0 then answer[8] = string.format('%.0f', turn) end
    queues_named[#queues_named + 1] = pack('>I4I4i4', list.lane, site, 2147483647 - inverse)
    step(list)
    if #ready > 1 or not list.place then list = best_of(ready) end
end
answer[9] = table.concat(queues_named)
return answer
