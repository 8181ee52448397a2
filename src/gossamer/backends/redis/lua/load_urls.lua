-- Load URLs from a stream of rows. ARGV: time, then one packed text for each URL (stream_rows.py):
--   c16 fingerprint, B state, i4 priority, I4 attempts, I4 deliveries, I4 depth, I4 max attempts, d due, d created,
--   d changed, Hc0 site, Hc0 reason, Hc0 message, I4c0 incidents (MessagePack list, or empty), tail
-- A known URL stays as it is. Returns how many were new.

local added = 0
for i = 2, #ARGV do
    local row, site, incidents, place = {worker = '', token = 0, sequence = 0}
    row.fingerprint, row.state, row.priority, row.attempts, row.deliveries, row.depth, row.max_attempts, row.at,
        row.created, row.changed, site, row.reason, row.message, incidents, place =
        unpack_from('>c16Bi4I4I4I4I4dddHc0Hc0Hc0I4c0', ARGV[i])
    if not is_known(row.fingerprint) then
        row.tail = string.sub(ARGV[i], place)
        row.site = number_of(site)
        row.id = next_sequence()
        if row.state == QUEUED then
            enqueue(row)
        elseif row.state == WAITS then
            call('ZADD', WAITING, row.at, row.fingerprint)
            local queue = queue_of(queue_number(row))
            queue.waiting = queue.waiting + 1
            if row.at >= NO_ROOM_FROM then count('postponed', 1) end
        elseif row.state == BURIED then
            call('ZADD', DEAD, row.changed, row.fingerprint)
        end
        write_row(row)
        if incidents ~= '' then call('HSET', INCIDENTS, row.fingerprint, incidents) end
        count(COUNTER[row.state], 1)
        added = added + 1
    end
end
flush()
return added
