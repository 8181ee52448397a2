-- A site could not be reached, or answered after all. The rules and numbers are those of frontier/away.py.
-- ARGV: time, site, interval of the settings (-1: none), then, unless it answered: host, reason, 1 if the host has
-- never answered, base, cap, patience, probes.
-- Returns {1 if the failure uses up a try, pause, 1 if the site is given up, since when it is away}.

local QUIET, GIVEN_UP = 2, 60

insist()
local site = site_of(number_of(ARGV[2]))
if #ARGV == 3 then
    is_back(site)
    flush()
    return {0, '0', 0, '0'}
end

local function after_failure(interval, host, reason, never, base, cap, patience, probes)
    if now - site.answered < math.max(QUIET, 3 * interval) then return 1, 0, 0 end
    if site.given_up_until > now then return 0, 0, 1 end
    if site.strikes == 0 or now - site.rest_until > math.max(cap, GIVEN_UP, 3 * interval) then
        site.away_host, site.away_reason, site.away_since, site.strikes, site.given_up_until = host, reason, now, 1, 0
        return 1, base, 0
    end
    if site.away_host ~= host then site.away_host = '' end
    if site.rest_until > now then return 0, site.rest_until - now, 0 end
    site.away_reason, site.strikes = reason, site.strikes + 1
    if ((never or site.answered == 0) and site.strikes >= probes) or now - site.away_since >= patience then
        site.strikes, site.given_up_until = 0, now + GIVEN_UP
        return 0, 0, 1
    end
    return 0, math.min(base * 2 ^ math.min(site.strikes - 1, 30), cap), 0
end

local counts, pause, over = after_failure(math.max(tonumber(ARGV[3]), site.asked, 0), ARGV[4], ARGV[5], ARGV[6] == '1',
    tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]))
if pause > 0 then site.rest_until = math.max(site.rest_until, now + pause) end
site.changed = true
flush()
local since = (site.strikes > 0 or over == 1) and site.away_since or 0
return {counts, string.format('%.6f', pause), over, string.format('%.6f', since)}
