-- A counter of CosId: the last number that was handed out, and nothing else.
local function refusal()
    -- Nothing is granted by a replica, even one that takes writes: what its master grants comes on top.
    incarnation()
    return nil
end

local function read()
    return redis.call('GET', KEYS[1])
end

local function write(last)
    redis.call('SET', KEYS[1], last)
end

local function add(count)
    redis.call('INCRBY', KEYS[1], count)
end
