-- Which durable store grants the numbers in this server: KEYS[2] is a hash with its identity, for each kind of keys. The
-- last two arguments of a script are the kind and the identity of the caller's durable store.

-- The identity of another one than the caller's, if that is recorded.
local function other_durable()
    local recorded = redis.call('HGET', KEYS[2], ARGV[#ARGV - 1])
    return recorded and recorded ~= ARGV[#ARGV] and recorded
end

-- The same. Where none is recorded, the caller's is from now on: it has just granted something, or was just looked at.
local function recorded_other()
    if not redis.call('HGET', KEYS[2], ARGV[#ARGV - 1]) then
        redis.call('HSET', KEYS[2], ARGV[#ARGV - 1], ARGV[#ARGV])
    end
    return other_durable()
end
