-- A site answered that requests are too frequent. The rules and numbers are those of frontier/learned_pace.py.
-- ARGV: time, site, rest in seconds, interval of the settings (-1: none), worker with a lease of it or ''.
-- Returns the learned interval, or '' while there is none.

local UNPACED, SAME, SOON, SLOWEST, SPARSE, NEWEST = 0.05, 1, 100, 60, 50, 0.25

insist()
local site = site_of(number_of(ARGV[2]))
local rest, settings, worker = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local function learn()
    if site.rest_until > now or now - site.refused_at < SAME then return end
    local known, own = learned_now(site), math.max(settings, site.asked)
    local base = math.max(own > 0 and own or UNPACED, known)
    local requests = (now - math.max(site.rest_until, site.refused_at)) / math.max(base, UNPACED)
    if site.refused_at == 0 or requests > SOON then
        site.learned, site.between = known, SPARSE
    else
        local between = site.between > 0 and site.between or SPARSE
        between = between + NEWEST * (requests - between)
        local most = math.min(math.max(own, UNPACED) * (1 + SPARSE / math.max(between, 1)), SLOWEST)
        site.learned, site.between = math.max(base, math.min(2 * base, most)), between
    end
    site.refused_at = now
end

learn()
if rest > 0 then site.rest_until = math.max(site.rest_until, now + rest) end
if site.learned >= 0 and worker ~= '' and site.in_flight > 0 and site.holder == '' then site.holder = worker end
site.changed = true
flush()
local interval = learned_now(site)
return interval >= 0 and string.format('%.17g', interval) or ''
