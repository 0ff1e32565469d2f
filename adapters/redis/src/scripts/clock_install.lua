-- Gives this server the ticks ARGV[4] .. ARGV[5] - 1 that the durable store granted: at most once, for the generation
-- ARGV[1] becomes ARGV[3], and only while the server is the incarnation ARGV[2]. Ticks that were left are given up, unless
-- the new ones begin where they end. ARGV[6] is the new `low`.
local hash = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', 'tick', 'sequence', 'end')
local here = incarnation()
if hash[1] ~= ARGV[1] then
    return {'refused', 'somebody changed the shard'}
end
if here ~= ARGV[2] then
    return {'refused', 'the server is another incarnation'}
end
if recorded_other() then
    return {'refused', 'another durable store grants the numbers now'}
end
local start, tick, sequence = tonumber(ARGV[4]), tonumber(hash[3]), hash[4]
if start < tonumber(hash[5]) then
    return {'refused', 'the ticks begin before the end of those that were granted last'}
end
if hash[2] ~= here or start > tonumber(hash[5]) then
    tick, sequence = start, '0'
end
redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'incarnation', here, 'tick', text(tick), 'sequence', sequence, 'end',
    ARGV[5], 'low', ARGV[6], 'claim', '', 'claim_until_ms', '0')
return {'installed'}
