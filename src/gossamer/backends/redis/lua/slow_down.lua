-- A site asked for space. ARGV: time, site, rest in seconds, crawl-delay in seconds or '', worker with a lease of it or ''.
-- Returns {0 when another worker holds the site, else 1; how many turns of the site are owed}.

insist()
local site = site_of(number_of(ARGV[2]))
local rest, worker = tonumber(ARGV[3]), ARGV[5]
if rest > 0 then site.rest_until = math.max(site.rest_until, now + rest) end
local held = 1
if ARGV[4] ~= '' then
    site.asked = tonumber(ARGV[4])
    if worker ~= '' and site.in_flight > 0 then
        if site.holder == '' then site.holder = worker end
        if site.holder ~= worker then held = 0 end
    end
end
site.changed = true
flush()
return {held, site.in_flight - site.passed}
