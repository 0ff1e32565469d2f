-- The hash of a store that has no durable one behind it. It is lost as a whole, or not at all.
--
--   marker       the name of the store, there since it was initialised; another one since it was restored
--   floor        how far above their start new tags begin, since the store was restored
--   sub_keys     how many of the tags are sub-keys
--   last:TAG     the last number that was granted
--   options:TAG  `start=1 mode=buffered`, then the policies
--
-- What follows is the counter of the tag ARGV[1], in the store whose marker is the last one of ARGV.
local function refusal()
    -- Of a replica, even one that takes writes, there is none: what its master grants comes on top.
    incarnation()
    local marker = redis.call('HGET', KEYS[1], 'marker')
    if not marker then
        return {'void'}
    end
    if marker ~= ARGV[#ARGV] then
        return {'another', shown(marker)}
    end
    return nil
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
