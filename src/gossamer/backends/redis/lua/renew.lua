-- Extend leases. ARGV: time, lease seconds, then packed texts: c16 fingerprint, I4 token. Returns 1 or 0 for each.

insist()
local till = now + tonumber(ARGV[2])
local answer = {}
for i = 3, #ARGV do
    local fingerprint, token = unpack_from('>c16I4', ARGV[i])
    local row = read_row(fingerprint)
    if row and row.state == IN_PROGRESS and row.token == token and row.at > now then
        row.at = till
        write_row(row)
        later('ZADD', LEASED, till, fingerprint)
        answer[#answer + 1] = 1
    else
        answer[#answer + 1] = 0
    end
end
flush()
return answer
