-- Take from all the budgets, or from none. KEYS: budgets.
-- ARGV: units, then for each budget its name and how much may be spent before this taking ('' if it can never be).
-- Returns the position of the first budget that has too few, 0 if they were taken.
--
-- Amounts are integers in decimal digits. They are compared as texts and added by the server: as Lua numbers, those
-- above 2^53 would be rounded.

local function exceeds(spent, room)
    if #spent ~= #room then return #spent > #room end
    return spent > room
end

local names = {}
for place = 1, (#ARGV - 1) / 2 do
    local name, room = ARGV[place * 2], ARGV[place * 2 + 1]
    if exceeds(redis.call('HGET', KEYS[1], name) or '0', room) then return place end
    names[name] = true
end
for name in pairs(names) do redis.call('HINCRBY', KEYS[1], name, ARGV[1]) end
return 0
