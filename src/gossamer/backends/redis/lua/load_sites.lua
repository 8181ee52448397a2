-- Load sites and their budgets from a stream of rows. ARGV: time, then packed texts (state_stream.py), each one of
--   B 1, Hc0 site, d bucket, d rest, d crawl-delay, then its learned pace: d interval (-1: none), d refused at, d requests
--     between refusals                                               politeness of a site
--   B 2, Hc0 site, I4 taken                                        how many URLs of the site this job has taken
--   B 3, Hc0 site, I4 taken, Hc0 shape                             the same, of one path shape
-- Loading a text twice has the same effect as loading it once.

for i = 2, #ARGV do
    local kind, name, place = unpack_from('>BHc0', ARGV[i])
    local number = number_of(name)
    if kind == 1 then
        local site = site_of(number)
        site.next_at, site.rest_until, site.asked, site.learned, site.refused_at, site.between =
            unpack_from('>dddddd', ARGV[i], place)
        site.changed = true
    elseif kind == 2 then
        queue_of(number).taken = unpack_from('>I4', ARGV[i], place)
    else
        local taken, shape = unpack_from('>I4Hc0', ARGV[i], place)
        call('HSET', SHAPES, number .. ' ' .. shape, taken)
    end
end
flush()
return 1
