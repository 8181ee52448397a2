-- Mark a note of waiting results as given up. KEYS: spools. ARGV: name. Returns the note as it is now, or nothing.
-- The mark is the last field of the note, edited as text: JSON in Lua would round the times.

local note = redis.call('HGET', KEYS[1], ARGV[1])
if not note then return false end
note = string.gsub(note, '"given_up":false}$', '"given_up":true}')
redis.call('HSET', KEYS[1], ARGV[1], note)
return note
