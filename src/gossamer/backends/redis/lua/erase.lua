-- Take addresses out of a job; the rows stay, so that counts add up. Open URLs and dead letters are dropped.
-- ARGV: time, reason, the task that takes the place of each, fingerprints... Returns how many there were.

insist()
local reason, nothing, erased = ARGV[2], ARGV[3], 0
for i = 4, #ARGV do
    local row = read_row(ARGV[i])
    if row then
        local before = row.state
        if before <= IN_PROGRESS then
            local number = queue_number(row)
            local queue = queue_of(number)
            if before == IN_PROGRESS then
                call('ZREM', LEASED, row.fingerprint)
                queue.leased = queue.leased - 1
                hold(row.worker, -1)
                take_away(row)
            elseif before == WAITS then
                call('ZREM', WAITING, row.fingerprint)
                queue.waiting = queue.waiting - 1
                if row.at >= NO_ROOM_FROM then count('postponed', -1) end
            else
                call('ZREM', QUEUE, place_in_queue(row, number))
                queue.queued = queue.queued - 1
                if queue.queued == 0 then queue.state = Q_EMPTY end
            end
        elseif before == BURIED then
            call('ZREM', DEAD, row.fingerprint)
        end
        if before <= IN_PROGRESS or before == BURIED then
            move(before, DROPPED)
            count_drop(reason, 1)
            row.state, row.changed = DROPPED, now
        end
        if before ~= DROPPED then row.reason = reason end
        row.worker, row.message, row.at, row.tail = '', '', 0, nothing
        call('HDEL', INCIDENTS, row.fingerprint)
        write_row(row)
        erased = erased + 1
    end
end
flush()
return erased
