-- Entering candidates: each becomes queued, or dropped with a reason, or is counted as a duplicate.
-- Loaded between prelude.lua and the scripts that admit. Candidates come as one packed text, made by rows.py:
--   c16 fingerprint, B drop reason (0: none), i4 priority, I4 depth, I4 max attempts, B force (1) and named (2),
--   Hc0 site, Hc0 shape, I4c0 tail

local REASONS = {
    'duplicate', 'robots', 'scope', 'depth', 'trap', 'pattern-limit', 'invalid', 'fresh', 'unmodified', 'site-limit',
}
local DEPTH, PATTERN_LIMIT, SITE_LIMIT = 4, 6, 10

-- Drop reasons that no candidate has itself: the job was given up.
local GIVEN_UP = {replaced = 254, cancelled = 255}
for reason, number in pairs(GIVEN_UP) do REASONS[number] = reason end

local CANDIDATE = '>c16Bi4I4I4BHc0Hc0I4c0'

-- The job's terms of admission, five arguments from the given one on: per_site, per_shape (-1 for no budget), window
-- (-1: forever), bits and hashes of the Bloom filter (0 for none). URLs created until `before` may enter again.
local function terms_from(i)
    local window = tonumber(ARGV[i + 2])
    return {
        per_site = tonumber(ARGV[i]), per_shape = tonumber(ARGV[i + 1]), before = window >= 0 and now - window or -1,
        bits = tonumber(ARGV[i + 3]), hashes = tonumber(ARGV[i + 4]),
    }
end

-- Whether the server is out of memory. Checked before anything is written.
local function is_starved()
    local probe = redis.pcall('HINCRBY', COUNTS, 'discovered', 0)
    return type(probe) == 'table' and probe.err ~= nil
end

local function seen_in_filter(fingerprint, terms, remember)
    local first = unpack_from('>I6', fingerprint, 1)
    local step = unpack_from('>I6', fingerprint, 7) * 2 + 1
    local seen = true
    for i = 0, terms.hashes - 1 do
        local bit = (first + i * step) % terms.bits
        if remember then
            if call('SETBIT', FILTER, bit, 1) == 0 then seen = false end
        elseif call('GETBIT', FILTER, bit) == 0 then
            return false
        end
    end
    return seen
end

local function may_return(row, candidate, terms)
    if row.state == DONE or row.state == UNCHANGED or row.state == BURIED then
        return candidate.force == 1 or row.created <= terms.before
    end
    return row.state == DROPPED and row.reason == 'depth'
end

-- The limit that the candidate exceeds, as the number of a reason; 0 if there is none. A URL that a person named
-- exceeds none, and does not use up the limit of its pattern.
local function limit_of(candidate, number, queue, terms, shapes)
    if candidate.force == 1 or candidate.named then return 0 end
    if terms.per_site >= 0 and queue.taken >= terms.per_site then return SITE_LIMIT end
    if terms.per_shape < 0 then return 0 end
    local which = number .. ' ' .. candidate.shape
    local taken = shapes[which] or tonumber(call('HGET', SHAPES, which) or 0)
    if taken >= terms.per_shape then return PATTERN_LIMIT end
    shapes[which] = taken + 1
    return 0
end

-- Put a new task into its queue, or let it wait if there is no room. True if it is in the queue.
local function enter(row, has_room)
    if has_room then
        enqueue(row)
        return true
    end
    row.state, row.reason, row.at = WAITS, NO_ROOM, NO_ROOM_DUE - row.priority
    later('ZADD', WAITING, row.at, row.fingerprint)
    local queue = queue_of(queue_number(row))
    queue.waiting = queue.waiting + 1
    return false
end

local function fresh_row(candidate, number, state, reason)
    return {
        fingerprint = candidate.fingerprint, state = state, site = number, priority = candidate.priority,
        sequence = 0, id = 0, attempts = 0, deliveries = 0, token = 0, depth = candidate.depth,
        max_attempts = candidate.max_attempts, at = 0, created = now, changed = now, worker = '', reason = reason,
        message = '', tail = candidate.tail,
    }
end

-- `terms` are those of terms_from, with `room`, how many may be queued (-1: unlimited; those beyond it wait), and
-- `given_up`, the number of the reason why none may be queued (nil while the job runs).
-- Returns how many entered, duplicates, dropped, the positions of candidates that only the Bloom filter calls known, and
-- how many of those that entered are in the queue.
local function admit(text, terms)
    local queued, postponed, duplicates, dropped, offered = 0, 0, 0, 0, 0
    local doubtful, shapes = {}, {}
    local place, size = 1, #text
    while place <= size do
        local c, reason = {}
        c.fingerprint, reason, c.priority, c.depth, c.max_attempts, c.force, c.site, c.shape, c.tail, place =
            unpack_from(CANDIDATE, text, place)
        c.named, c.force = c.force >= 2, c.force % 2
        offered = offered + 1
        if reason == 0 and terms.given_up then reason = terms.given_up end
        local has_room = terms.room < 0 or queued < terms.room
        local row = is_known(c.fingerprint) and read_row(c.fingerprint) or nil
        if row then
            duplicates = duplicates + 1
            if reason == 0 and may_return(row, c, terms) then
                count(COUNTER[row.state], -1)
                if row.state == BURIED then call('ZREM', DEAD, c.fingerprint) end
                if row.state == DROPPED then count_drop(row.reason, -1) end
                local again = fresh_row(c, row.site, QUEUED, '')
                again.id, again.token = row.id, row.token
                if enter(again, has_room) then queued = queued + 1 else postponed = postponed + 1 end
                write_row(again)
            end
        elseif terms.bits > 0 and c.force == 0 and seen_in_filter(c.fingerprint, terms, false) then
            duplicates = duplicates + 1
            if reason == 0 then doubtful[#doubtful + 1] = offered end
        else
            local number = number_of(c.site)
            local queue = reason == 0 and queue_of(number) or nil  -- the one without a lane: it counts for all
            if queue then reason = limit_of(c, number, queue, terms, shapes) end
            local kept = reason == 0 or terms.bits == 0
            if terms.bits > 0 and reason ~= DEPTH then seen_in_filter(c.fingerprint, terms, true) end
            if kept then
                row = fresh_row(c, number, reason == 0 and QUEUED or DROPPED, REASONS[reason] or '')
                row.id = next_sequence()
                if reason == 0 then
                    queue.taken = queue.taken + 1
                    if enter(row, has_room) then queued = queued + 1 else postponed = postponed + 1 end
                end
                write_row(row)
            end
            if reason ~= 0 then
                dropped = dropped + 1
                count_drop(REASONS[reason], 1)
            end
        end
    end
    for which, taken in pairs(shapes) do call('HSET', SHAPES, which, taken) end
    count('discovered', offered)
    count('duplicates', duplicates)
    count('queued', queued)
    count('waiting', postponed)
    count('postponed', postponed)
    count('dropped', dropped)
    return queued + postponed, duplicates, dropped, doubtful, queued
end

-- How many more URLs the queue of this shard may take; -1: unlimited.
local function room_below(bound, elsewhere)
    if bound < 0 then return -1 end
    return math.max(0, bound - elsewhere - counter('queued') - counter('waiting') + counter('postponed'))
end

-- Admit the links of a settled page; links beyond the bound wait for room. Returns what admit() returns.
local function admit_links(text, terms, bound, elsewhere)
    if text == '' then return 0, 0, 0, {}, 0 end
    terms.room = room_below(bound, elsewhere)
    return admit(text, terms)
end
