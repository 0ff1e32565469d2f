-- The hash of a store that has no durable one behind it. It is lost as a whole, or not at all.
--
--   marker       the name of the store, there since it was initialised
--   last:TAG     the last number that was granted
--   options:TAG  `start=1 mode=buffered`, then the policies
--
-- What follows is the counter of the tag ARGV[1].
local function is_initialised()
    -- Of a replica, even one that takes writes, there is none: what its master grants comes on top.
    incarnation()
    return redis.call('HEXISTS', KEYS[1], 'marker') == 1
end

local function read()
    return redis.call('HGET', KEYS[1], 'last:' .. ARGV[1])
end

local function write(last)
    redis.call('HSET', KEYS[1], 'last:' .. ARGV[1], last)
end

local function add(count)
    redis.call('HINCRBY', KEYS[1], 'last:' .. ARGV[1], count)
end
