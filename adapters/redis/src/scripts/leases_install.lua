-- Gives this server the time from ARGV[4] to ARGV[5] (Unix ms) that the durable store granted: at most once, for the
-- generation ARGV[1] becomes ARGV[3], and only while the server is the incarnation ARGV[2]. Time that begins at the bound
-- moves the bound. With the binding ARGV[6], other time begins the namespace anew.
local hash = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', 'bound_ms')
local here = incarnation()
if hash[1] ~= ARGV[1] then
    return {'refused', 'somebody changed the namespace'}
end
if here ~= ARGV[2] then
    return {'refused', 'the server is another incarnation'}
end
if recorded_other() then
    return {'refused', 'another durable store grants the numbers now'}
end
local bound, start = ms('bound_ms', hash[3]), ms('the start of a grant', ARGV[4])
ms('the end of a grant', ARGV[5])
if hash[2] == here and start == bound then
    redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'bound_ms', ARGV[5], 'claim', '', 'claim_until_ms', '0')
    return {'installed'}
end
if start < bound then
    return {'refused', 'the time begins before the end of that which was granted last'}
end
if ARGV[6] == '' then
    return {'refused', 'the time in between is not granted'}
end
begin('generation', ARGV[3], 'incarnation', here, 'bound_ms', ARGV[5], 'binding', ARGV[6], 'claim', '',
    'claim_until_ms', '0')
return {'installed'}
