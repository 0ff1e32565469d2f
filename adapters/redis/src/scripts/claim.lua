-- Lets one client at a time get more from the durable store: ARGV[1] for ARGV[2] ms. With ARGV[3], makes a hash that is
-- missing, with that generation and the fields ARGV[4] .., which give nothing. Nothing depends on this being respected,
-- only less is burnt.
local other = other_durable()
if other then
    return {'other', other}
end
local hash = redis.call('HMGET', KEYS[1], 'generation', 'claim', 'claim_until_ms')
local now = now_ms()
if not hash[1] and ARGV[3] == '' then
    return {'missing'}
end
local wait_ms = (tonumber(hash[3] or '') or 0) - now
if hash[1] and hash[2] ~= ARGV[1] and wait_ms > 0 and wait_ms <= tonumber(ARGV[2]) then
    return {'claimed', text(wait_ms)}
end
local claim_until_ms = text(now + tonumber(ARGV[2]))
if hash[1] then
    redis.call('HSET', KEYS[1], 'claim', ARGV[1], 'claim_until_ms', claim_until_ms)
else
    redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'claim', ARGV[1], 'claim_until_ms', claim_until_ms, unpack(ARGV, 4, #ARGV - 2))
end
return {'yours'}
