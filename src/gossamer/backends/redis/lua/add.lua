-- Offer candidates. ARGV: time, bound (-1: none), open elsewhere, whole, per_site, per_shape, window, bits, hashes,
-- candidates, '' or 'revives': the job will run again, whatever its state is now.
-- `whole` is how many candidates the caller is about to add here and in other shards: all of them must fit. With -1
-- nothing is refused, and candidates beyond the bound wait for room.
-- Returns {-1, depth} when the queue is full, else {entered, duplicates, dropped, {doubtful...}, queued}.

local bound, elsewhere, whole = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if bound >= 0 and whole >= 0 then
    local depth = counter('queued') + counter('waiting') + elsewhere
    if depth + whole > bound then return {-1, depth} end
end
local terms = terms_from(5)
terms.room = whole < 0 and room_below(bound, elsewhere) or -1
if ARGV[11] == '' then terms.given_up = GIVEN_UP[call('HGET', META, 'state')] end
local entered, duplicates, dropped, doubtful, queued = admit(ARGV[10], terms)
flush()
return {entered, duplicates, dropped, doubtful, queued}
