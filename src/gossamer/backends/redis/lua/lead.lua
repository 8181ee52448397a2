-- Become the leading scheduler, or extend the lead. KEYS: leader. ARGV: time or '', candidate, seconds.
-- Returns {} while another scheduler leads, otherwise {token, end of the term}. The token grows with every change of
-- leader.
-- A term longer than any can be was written while the server's clock was ahead: it is over.

local leader = redis.call('HMGET', KEYS[1], 'name', 'token', 'until')
local token = tonumber(leader[2] or 0)
if leader[1] ~= ARGV[2] then
    local left = tonumber(leader[3] or 0) - now
    if left > 0 and left <= tonumber(ARGV[3]) + 0.001 then return {} end  -- ends are written with fewer digits
    token = token + 1
end
local till = string.format('%.6f', now + tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'name', ARGV[2], 'token', token, 'until', till)
return {token, till}
