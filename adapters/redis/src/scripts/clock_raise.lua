-- Has the next id at the tick ARGV[1] or later, and makes the generation ARGV[2]: what was to be installed under the old
-- one comes too late.
local hash = redis.call('HMGET', KEYS[1], 'generation', 'tick', 'sequence')
if not hash[1] then
    return {'missing'}
end
local tick, sequence = tonumber(hash[2]), hash[3]
if tick < tonumber(ARGV[1]) then
    tick, sequence = tonumber(ARGV[1]), '0'
end
redis.call('HSET', KEYS[1], 'generation', ARGV[2], 'tick', text(tick), 'sequence', sequence)
return {'done'}
