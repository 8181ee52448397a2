-- Who holds leases of this job in this shard? Returns the names of workers, each once.

local known, answer = {}, {}
for _, fingerprint in ipairs(call('ZRANGE', LEASED, 0, -1)) do
    local row = read_row(fingerprint)
    if row and not known[row.worker] then
        known[row.worker] = true
        answer[#answer + 1] = row.worker
    end
end
return answer
