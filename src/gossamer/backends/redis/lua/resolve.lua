-- Settle a dead letter as done. ARGV: time, bound (-1: none), open elsewhere, per_site, per_shape, window, bits,
-- hashes, fingerprint, token, duplicates, dropped, reason, candidates (see admission.lua).
-- `dropped` counts links for which another shard had no memory.
-- Returns {-1} if the letter no longer exists, {-2} if there are candidates and the job has ended; then nothing is
-- changed. Otherwise {queued, duplicates, dropped, {doubtful...}}.

local fingerprint, duplicates, lost, candidates = ARGV[9], tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[14]
local row = read_row(fingerprint)
if not row or row.state ~= BURIED or row.token ~= tonumber(ARGV[10]) then return {-1} end
if candidates ~= '' and call('HGET', META, 'state') ~= 'running' then return {-2} end

local starved = is_starved()
insist()
local terms = terms_from(4)
call('ZREM', DEAD, fingerprint)
if terms.bits > 0 then
    call('HDEL', URLS, fingerprint)
    call('HDEL', INCIDENTS, fingerprint)
else
    note(fingerprint, 'resolved from the dead letters (' .. row.reason .. ')')
    row.state, row.changed, row.reason, row.message, row.deliveries = DONE, now, ARGV[13], '', 0
    write_row(row)
end
move(BURIED, DONE)
count('discovered', duplicates + lost)
count('duplicates', duplicates)
count('dropped', lost)
local queued, doubled, dropped, doubtful =
    admit_links(candidates, terms, tonumber(ARGV[2]), tonumber(ARGV[3]), starved)
flush()
return {queued, doubled, dropped, doubtful}
