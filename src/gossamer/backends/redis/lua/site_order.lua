-- An operator's order for a site. ARGV: time, site, seconds between two requests (-1: none), rest until (0: none), and
-- 1 to delete what was learned of its pace. Returns 1 if something was deleted.
-- The next lease looks at the job's sleeping queues again; they sleep on if the site's own pace requires it.

insist()
local number = number_of(ARGV[2])
local site = site_of(number)
site.ordered, site.ordered_rest, site.changed = tonumber(ARGV[3]), tonumber(ARGV[4]), true
local forgets = ARGV[5] == '1' and site.learned >= 0
if forgets then site.learned, site.refused_at = -1, 0 end
for _, lane in ipairs(lanes_named('*')) do
    local queue = find_queue(lane * SITES_OF_A_LANE + number)
    if queue and queue.state == Q_SLEEPING then queue.state, queue.wake_at = Q_READY, 0 end
end
flush()
return forgets and 1 or 0
