-- Look again at the job's queues that sleep because of a site's pace; they sleep on if it requires that. ARGV: time,
-- site, and the new interval of its settings (-1: none), or '' to delete what was learned of its pace. Returns 1 if
-- something was deleted.

insist()
local number = tonumber(call('HGET', NUMBERS, ARGV[2]))
if not number then return 0 end
local site = site_of(number)
local forgets = ARGV[3] == '' and site.learned >= 0
if forgets then site.learned, site.refused_at, site.between = -1, 0, 0 end
if ARGV[3] ~= '' then
    site.next_at = math.min(site.next_at, now + math.max(0, tonumber(ARGV[3]), site.asked, learned_now(site)))
end
site.changed = true
for _, lane in ipairs(lanes_named('*')) do
    local queue = find_queue(lane * SITES_OF_A_LANE + number)
    if queue and queue.state == Q_SLEEPING then queue.state, queue.wake_at = Q_READY, 0 end
end
flush()
return forgets and 1 or 0
