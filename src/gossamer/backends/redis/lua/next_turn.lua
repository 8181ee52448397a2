-- Take another turn for a lease whose earlier turn has ended. ARGV: time, packed c16 fingerprint and I4 token, number of
-- the turn, interval (-1: no rate), burst, 1 if the site rests by the settings.
-- Returns {-1} if the lease is lost; {0, seconds to wait}; {1, interval (-1: none), burst, ahead}: the turn is taken.

local REST_LOOK, HEAD_START, TURN_LOOK, TURN_KEPT = 1, 0.02, 0.05, 0.25  -- seconds, as in frontier/politeness.py
local TOO_FAR = 3600  -- seconds, as in leasing.py

insist()
local fingerprint, token = unpack_from('>c16I4', ARGV[2])
local number, interval, burst = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local row, calm = read_row(fingerprint), calm_at()
if not row or row.state ~= IN_PROGRESS or row.token ~= token or row.at <= now then return {-1} end
local site = site_of(row.site)

local function wait(seconds)
    flush()
    return {0, string.format('%.6f', seconds)}
end

if not calm then return wait(REST_LOOK) end
local rest_until = math.max(site.rest_until, calm)
if ARGV[6] == '1' then rest_until = math.max(rest_until, now + REST_LOOK) end
if rest_until > now then return wait(rest_until - now) end
local asked, ahead = math.max(site.asked, learned_now(site)), 0
if asked >= 0 then interval, burst = math.max(interval, asked), 1 end
if interval >= 0 then
    if site.in_flight > site.passed and site.holder ~= row.worker then
        site.kept_until, site.changed = math.max(site.kept_until, now + TURN_KEPT), true
        return wait(TURN_LOOK)
    end
    if site.next_at > now + interval * burst + TOO_FAR then site.next_at = now end
    site.next_at = math.max(site.next_at, calm + interval * burst)
    local turn = site.next_at - (burst - 1) * interval - HEAD_START
    if turn > now then
        site.kept_until, site.changed = math.max(site.kept_until, turn + TURN_KEPT), true
        return wait(turn - now)
    end
    ahead = math.max(site.next_at, now) + interval - now
    site.next_at, site.pace, site.holder = now + ahead, interval, row.worker
end
if row.sequence % 2 == 1 then site.passed = math.max(0, site.passed - 1) end
site.kept_until, site.changed = 0, true
row.sequence = 2 * number
write_row(row)
flush()
return {1, string.format('%.17g', interval), burst, string.format('%.17g', ahead)}
