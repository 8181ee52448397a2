-- Drop open URLs of a replaced or cancelled job, a portion at a time. ARGV: time, reason, how many leased URLs, how
-- many URLs in all.
-- Returns how many were examined: 0 if no URL is open any more, -1 if this shard does not yet know that the job was
-- given up.

insist()
local reason, in_progress, left = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if call('HGET', META, 'state') ~= reason then return -1 end
local seen = 0

local function drop(fingerprint)
    seen = seen + 1
    local row = read_row(fingerprint)
    if not row or row.state > IN_PROGRESS then return end
    local queue = queue_of(queue_number(row))
    if row.state == IN_PROGRESS then
        queue.leased = queue.leased - 1
        hold(row.worker, -1)
        take_away(row)
    elseif row.state == WAITS then
        queue.waiting = queue.waiting - 1
        if row.at >= NO_ROOM_FROM then count('postponed', -1) end
    else
        queue.queued = queue.queued - 1
    end
    if queue.queued == 0 then queue.state = Q_EMPTY end
    move(row.state, DROPPED)
    count_drop(reason, 1)
    row.state, row.reason, row.worker, row.at, row.changed = DROPPED, reason, '', 0, now
    write_row(row)
end

local function drop_from(key, most)
    for _, fingerprint in ipairs(most > 0 and call('ZRANGE', key, 0, most - 1) or {}) do
        call('ZREM', key, fingerprint)
        drop(fingerprint)
    end
end

drop_from(LEASED, in_progress)
drop_from(WAITING, left - seen)
for _, member in ipairs(seen < left and call('ZRANGE', QUEUE, 0, left - seen - 1) or {}) do
    call('ZREM', QUEUE, member)
    drop(string.sub(member, -16))
end
flush()
return seen
