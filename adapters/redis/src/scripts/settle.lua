-- Gives the claim of ARGV[1] up; with ARGV[2], notes that more is due when less than that is left.
local claim = redis.call('HGET', KEYS[1], 'claim')
if not claim then
    return {'missing'}
end
if ARGV[2] ~= '' then
    redis.call('HSET', KEYS[1], 'low', ARGV[2])
end
if claim == ARGV[1] then
    redis.call('HSET', KEYS[1], 'claim', '', 'claim_until_ms', '0')
end
return {'done'}
