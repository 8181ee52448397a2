-- A site asked for space. ARGV: time, site, rest in seconds, crawl-delay in seconds or ''.

insist()
local site = site_of(number_of(ARGV[2]))
local rest = tonumber(ARGV[3])
if rest > 0 then site.rest_until = math.max(site.rest_until, now + rest) end
if ARGV[4] ~= '' then site.asked = tonumber(ARGV[4]) end
site.changed = true
flush()
return 1
