-- Settle a dead letter as done. ARGV: time, bound (-1: none), open elsewhere, per_site, per_shape, window, bits,
-- hashes, fingerprint, token, duplicates, reason, candidates (see admission.lua).
-- Returns {-1} if the letter no longer exists, {-2} if there are candidates and the job has ended; then nothing is
-- changed. Otherwise {entered, duplicates, dropped, {doubtful...}, queued}. Out of memory, a letter with candidates stays.

local fingerprint, duplicates, candidates = ARGV[9], tonumber(ARGV[11]), ARGV[13]
local row = read_row(fingerprint)
if not row or row.state ~= BURIED or row.token ~= tonumber(ARGV[10]) then return {-1} end
if candidates ~= '' and call('HGET', META, 'state') ~= 'running' then return {-2} end

if candidates ~= '' and is_starved() then return redis.error_reply('OOM: no memory for the links of this page') end
insist()
local terms = terms_from(4)
call('ZREM', DEAD, fingerprint)
if terms.bits > 0 then
    call('HDEL', URLS, fingerprint)
    call('HDEL', INCIDENTS, fingerprint)
else
    note(fingerprint, 'resolved from the dead letters (' .. row.reason .. ')')
    row.state, row.changed, row.reason, row.message, row.deliveries = DONE, now, ARGV[12], '', 0
    write_row(row)
end
move(BURIED, DONE)
count('discovered', duplicates)
count('duplicates', duplicates)
local entered, doubled, dropped, doubtful, queued =
    admit_links(candidates, terms, tonumber(ARGV[2]), tonumber(ARGV[3]))
flush()
return {entered, doubled, dropped, doubtful, queued}
