-- Offer candidates. ARGV: time, bound (-1: none), open elsewhere, whole, per_site, per_shape, window, bits, hashes,
-- candidates.
-- `whole` is how many candidates the caller is about to add here and elsewhere: all of them must fit.
-- Returns {-1, depth} when the queue is full, else {queued, duplicates, dropped, doubtful...}.

local bound, whole = tonumber(ARGV[2]), tonumber(ARGV[4])
if bound >= 0 then
    local depth = counter('queued') + counter('waiting') + tonumber(ARGV[3])
    if depth + whole > bound then return {-1, depth} end
end
local queued, duplicates, dropped, doubtful = admit(ARGV[10], {
    room = -1, per_site = tonumber(ARGV[5]), per_shape = tonumber(ARGV[6]), before = created_before(ARGV[7]),
    bits = tonumber(ARGV[8]), hashes = tonumber(ARGV[9]),
})
flush()
return {queued, duplicates, dropped, unpack(doubtful)}
