-- Prefix of every script about the book of jobs: names for KEYS, and how a job starts and ends.
-- KEYS: book, jobs, running, dropping, named, forgetting, listed.
-- Numbers that JSON in Lua would round are texts.

local BOOK, JOBS, RUNNING, DROPPING, NAMED, FORGETTING = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local LISTED = KEYS[7]

-- The job with that id, or nil.
local function find_job(id)
    local found = id and redis.call('HGET', JOBS, id)
    return found and cjson.decode(found) or nil
end

local function write_job(job)
    local text = cjson.encode(job)
    redis.call('HSET', JOBS, job.id, text)
    return text
end

local function end_job(job, state, ending, outcome)
    job.state, job.ending, job.finished_at, job.paused = state, ending, string.format('%.6f', now), false
    job.outcome = outcome or ''
    if redis.call('HGET', RUNNING, job.name) == job.id then redis.call('HDEL', RUNNING, job.name) end
    redis.call('HDEL', RUNNING, '#' .. job.id)
    write_job(job)
end

-- End a job that still has open URLs: it stays in `dropping` until a worker has cleared its shards.
local function give_up(job, state, ending)
    redis.call('SADD', DROPPING, job.id)
    end_job(job, state, ending)
end

-- The entry of a job among those of its name, or of its owner; the newest is last.
local function place_among(whose, number, id)
    return whose .. '\0' .. string.format('%012d', number) .. id
end

-- The two entries of a job in LISTED: among all, and among those of its owner. The owner is found in the text of the
-- terms: quotes inside values are escaped, so this can only be the key.
local function places_in_list(job)
    local owner = string.match(job.terms, '"owner":"([^"]*)"') or ''
    return place_among('*', job.number, job.id), place_among(owner, job.number, job.id)
end

-- Start a job. It replaces `before`, a running job of that name, or otherwise the job that has the name now.
-- Returns the job as JSON, its id, and the id of the replaced job or ''.
local function begin_job(name, slug, terms, before)
    before = before or find_job(redis.call('HGET', RUNNING, name))
    if before then give_up(before, 'finished', 'replaced') end
    local holder = find_job(redis.call('HGET', RUNNING, name))
    if holder then redis.call('HSET', RUNNING, '#' .. holder.id, holder.id) end -- it runs on, and is found by its id
    local number = redis.call('HINCRBY', BOOK, 'jobs', 1)
    if number == 1 then redis.call('HSET', BOOK, 'named', 1, 'listed', 1) end -- no job was here before these orders
    local job = {
        number = number, id = slug .. '-' .. number, name = name, state = 'running', ending = '', sealed = false,
        paused = false, created_at = string.format('%.6f', now), finished_at = '', terms = terms,
    }
    redis.call('HSET', RUNNING, name, job.id)
    redis.call('ZADD', NAMED, 0, place_among(name, number, job.id))
    local among_all, among_own = places_in_list(job)
    redis.call('ZADD', LISTED, 0, among_all, 0, among_own)
    return write_job(job), job.id, before and before.id or ''
end
