-- Find the unfinished job of a name, or open a new one. ARGV: time or '', name, slug, terms (JSON), 'fresh' or '', the
-- id of the job that the caller knows, and the terms for that one (JSON).
-- Returns {job as JSON, 1 if it was found, id of the job that it replaced or ''}, or {} if another job was opened
-- meanwhile, to which these terms do not apply.

local found = ARGV[5] == '' and find_job(redis.call('HGET', RUNNING, ARGV[2])) or nil
if found then
    if found.id ~= ARGV[6] then return {} end
    found.terms = ARGV[7]
    return {write_job(found), 1, ''}
end
local text, _, replaced = begin_job(ARGV[2], ARGV[3], ARGV[4])
return {text, 0, replaced}
