-- Put dead letters back into their queues, or drop them for good. ARGV: time, 'replay' or 'purge', their new priority
-- or '' to keep theirs, fingerprints... Returns how many were changed.

insist()
local changed = 0
for i = 4, #ARGV do
    local row = read_row(ARGV[i])
    if row and row.state == BURIED then
        call('ZREM', DEAD, row.fingerprint)
        row.changed = now
        if ARGV[2] == 'replay' then
            row.state, row.reason, row.message, row.attempts, row.deliveries = QUEUED, '', '', 0, 0
            row.priority = tonumber(ARGV[3]) or row.priority
            enqueue(row)
            local site = site_of(row.site)
            site.given_up_until, site.changed = 0, true
            note(row.fingerprint, 'replayed from the dead letters')
        else
            row.state, row.reason = DROPPED, 'purged: ' .. row.reason
            count_drop(row.reason, 1)
        end
        move(BURIED, row.state)
        write_row(row)
        changed = changed + 1
    end
end
if changed > 0 and ARGV[2] == 'replay' then call('HSET', META, 'state', 'running') end
flush()
return changed
