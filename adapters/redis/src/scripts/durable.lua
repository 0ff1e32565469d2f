-- Which durable store grants the numbers in this server: KEYS[2] is a hash with its identity, for each kind of keys. The
-- last two arguments of a script are the kind and the identity of the caller's durable store.
local function durable()
    return redis.call('HGET', KEYS[2], ARGV[#ARGV - 1])
end

-- The identity of another one than the caller's, if that is recorded. Where none is, the caller's is from now on.
local function other_durable()
    local recorded = durable()
    if not recorded then
        redis.call('HSET', KEYS[2], ARGV[#ARGV - 1], ARGV[#ARGV])
    elseif recorded ~= ARGV[#ARGV] then
        return recorded
    end
end
