-- What there is of a shard, how many ticks are left for an id that is not below the sequence ARGV[2] of the tick ARGV[1],
-- and what time it is; ticks count from ARGV[3] (Unix ms).
local hash = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', 'tick', 'sequence', 'end')
local now = now_ms()
if not hash[1] then
    return {'missing', text(now)}
end
local here, left = incarnation(), 0
if hash[2] == here then
    local tick = next_id(tonumber(hash[3]), tonumber(hash[4]), now - tonumber(ARGV[3]), tonumber(ARGV[1]), tonumber(ARGV[2]))
    left = math.max(0, tonumber(hash[5]) - tick)
end
return {'here', text(now), hash[1], here, hash[5], text(left)}
