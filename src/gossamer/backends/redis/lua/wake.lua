-- Make tasks due that wait for another reason than time. ARGV: time, how many waiting tasks were passed over before, how
-- many to look at, the reasons... Returns {made due, passed over}.

insist()
local reasons = {}
for i = 4, #ARGV do reasons[ARGV[i]] = true end
local woken, passed = 0, 0
local later_ones = call('ZRANGEBYSCORE', WAITING, '(' .. ARGV[1], '(' .. string.format('%.0f', NO_ROOM_FROM), 'LIMIT',
    ARGV[2], ARGV[3])
for _, fingerprint in ipairs(later_ones) do
    local row = read_row(fingerprint)
    if row and row.state == WAITS and reasons[row.reason] then
        row.at = now
        write_row(row)
        later('ZADD', WAITING, now, fingerprint)
        woken = woken + 1
    else
        passed = passed + 1
    end
end
flush()
return {woken, passed}
