-- Put back what was taken and not used; never below zero. KEYS: budgets. ARGV: units, then names, each once.
-- A budget that was deleted meanwhile stays deleted. Amounts are as in routes_take.lua.

local units = ARGV[1]
for place = 2, #ARGV do
    local spent = redis.call('HGET', KEYS[1], ARGV[place])
    if spent then
        if #spent > #units or (#spent == #units and spent > units) then
            redis.call('HINCRBY', KEYS[1], ARGV[place], '-' .. units)
        else
            redis.call('HSET', KEYS[1], ARGV[place], '0')
        end
    end
end
return 0
