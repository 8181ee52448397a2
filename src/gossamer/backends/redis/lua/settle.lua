-- Settle leases, several in one call. ARGV: time, bound (-1: none), open elsewhere, per_site, per_shape, window, bits,
-- hashes, then for each lease one packed text:
--   B verb, c16 fingerprint, I4 token, B state, B redirected, d delay, d paced ahead, d by how much the job's own
--   interval is longer than that of the site, I4 duplicates, Hc0 reason,
--   Hc0 message (for MOVE: the lane), Hc0 stats (MessagePack list of names and numbers, or empty),
--   candidates (see admission.lua)
-- MOVE is a RELEASE into another lane.
-- Returns for each {-1} if the lease is lost, {-2} if it has links and the server is out of memory; then nothing was
-- changed. Otherwise {entered, duplicates, dropped, {doubtful...}, queued}.

local SETTLEMENT = '>Bc16I4BBdddI4Hc0Hc0Hc0'
local COMPLETE, RETRY, RELEASE, BURY, MOVE = 1, 2, 3, 4, 5

local STATS, MOST_STATS, OTHERS = '=', 100, '=(others)'  -- see keys.py and model/job.py

local starved = is_starved()
insist()

local bound, elsewhere, terms = tonumber(ARGV[2]), tonumber(ARGV[3]), terms_from(4)
local answers = {}
local names  -- of the spider's own counters in this shard, once needed

local function add_stats(packed)
    if not names then
        names = {n = 0}
        for _, name in ipairs(call('HKEYS', COUNTS)) do
            if string.sub(name, 1, 1) == STATS and name ~= OTHERS then names[name], names.n = true, names.n + 1 end
        end
    end
    local list = cmsgpack.unpack(packed)
    for i = 1, #list, 2 do
        local name = STATS .. list[i]
        if not names[name] and names.n < MOST_STATS then names[name], names.n = true, names.n + 1 end
        count(names[name] and name or OTHERS, list[i + 1])
    end
end

local rows = {}  -- by fingerprint, until they are settled

local function settle(text)
    local verb, fingerprint, token, state, redirected, delay, ahead, gap, duplicates, reason, message, stats, place =
        unpack_from(SETTLEMENT, text)
    local row = rows[fingerprint] or read_row(fingerprint)
    rows[fingerprint] = nil
    if not row or row.state ~= IN_PROGRESS or row.token ~= token or row.at <= now then return {-1} end
    if starved and place <= #text then return {-2} end

    later('ZREM', LEASED, fingerprint)
    local queue = queue_of(queue_number(row))
    queue.leased = queue.leased - 1
    hold(row.worker, -1)
    free_slot(row, now + ahead)
    if gap > 0 then
        local own = queue_of(row.site)
        own.own_next = math.max(own.own_next, now + ahead + gap)
    end
    if verb == MOVE then
        local _, place_of_rest = lane_of(row.tail)
        row.tail = string.char(LANE_FOLLOWS) .. pack('>Hc0', #message, message) .. string.sub(row.tail, place_of_rest)
        queue = queue_of(queue_number(row))
        message = ''
    end
    if row.reason == SENT and (verb == RELEASE or verb == MOVE) then reason = SENT end
    row.worker, row.changed, row.reason, row.message, row.at = '', now, reason, message, 0

    if verb == COMPLETE then
        if state ~= DROPPED then is_back(site_of(row.site)) end
        row.state, row.attempts, row.deliveries = state, row.attempts + 1, 0
        count('redirected', redirected)
    elseif verb == BURY then
        row.state, row.attempts = BURIED, row.attempts + 1
        call('ZADD', DEAD, now, fingerprint)
    else
        row.state, row.at = WAITS, now + delay
        call('ZADD', WAITING, row.at, fingerprint)
        queue.waiting = queue.waiting + 1
        if verb == RETRY then
            -- A try with a response proves that the page does not kill its worker: deliveries start anew.
            row.attempts, row.deliveries = row.attempts + 1, 0
            count('retries', 1)
        else
            row.deliveries = row.deliveries - 1
        end
    end
    move(IN_PROGRESS, row.state)
    if row.state == DROPPED then count_drop(reason, 1) end
    count('discovered', duplicates)
    count('duplicates', duplicates)
    if #stats > 0 then add_stats(stats) end
    if terms.bits > 0 and verb == COMPLETE then
        call('HDEL', URLS, fingerprint)
        call('HDEL', INCIDENTS, fingerprint)
    else
        write_row(row)
    end
    local entered, doubled, dropped, doubtful, queued =
        admit_links(string.sub(text, place), terms, bound, elsewhere)
    return {entered, doubled, dropped, doubtful, queued}
end

-- Unreadable arguments fail here, before anything is written: an interrupted script is not undone.
local all_urls, all_sites, all_queues = {}, {}, {}
for i = 9, #ARGV do
    local _, fingerprint, _, _, _, _, _, _, _, _, _, stats = unpack_from(SETTLEMENT, ARGV[i])
    if #stats > 0 then cmsgpack.unpack(stats) end
    all_urls[#all_urls + 1] = fingerprint
end
read_many(URLS, all_urls, function(fingerprint, text)
    local row = text and read_row(fingerprint, text)
    if row then
        rows[fingerprint], all_sites[#all_sites + 1], all_queues[#all_queues + 1] = row, row.site, queue_number(row)
    end
end)
load_sites(all_sites)
load_queues(all_queues)
for i = 9, #ARGV do answers[#answers + 1] = settle(ARGV[i]) end
flush()
return answers
