-- Offer candidates. ARGV: time, bound (-1: none), open elsewhere, whole, per_site, per_shape, window, bits, hashes,
-- candidates, '' or 'revives': the job will run again, whatever its state is now.
-- `whole` is how many candidates the caller is about to add here and in other shards: all of them must fit. With -1
-- nothing is refused, and candidates beyond the bound are dropped.
-- Returns {-1, depth} when the queue is full, else {queued, duplicates, dropped, {doubtful...}}.

local bound, whole, room = tonumber(ARGV[2]), tonumber(ARGV[4]), -1
if bound >= 0 then
    local depth = counter('queued') + counter('waiting') + tonumber(ARGV[3])
    if whole < 0 then
        room = math.max(0, bound - depth)
    elseif depth + whole > bound then
        return {-1, depth}
    end
end
local terms = terms_from(5)
terms.room = room
if ARGV[11] == '' then terms.given_up = GIVEN_UP[call('HGET', META, 'state')] end
local queued, duplicates, dropped, doubtful = admit(ARGV[10], terms)
flush()
return {queued, duplicates, dropped, doubtful}
