-- End the turns of leases: their requests have left. ARGV: time, then packed texts: c16 fingerprint, I4 token, I4 number
-- of the turn, d paced ahead. A turn that is not owed any more, and one of a lost lease, changes nothing.

insist()
for i = 2, #ARGV do
    local fingerprint, token, number, ahead = unpack_from('>c16I4I4d', ARGV[i])
    local row = read_row(fingerprint)
    if row and row.state == IN_PROGRESS and row.token == token and row.at > now and row.sequence == 2 * number then
        row.sequence = row.sequence + 1
        write_row(row)
        local site = site_of(row.site)
        site.passed, site.next_at, site.changed = site.passed + 1, math.max(site.next_at, now + ahead), true
        wake_parked(row.site)
    end
end
flush()
return 1
