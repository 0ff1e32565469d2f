-- Lets one client at a time get more numbers from the durable store: ARGV[1] for ARGV[2] ms. With ARGV[3], makes a tag
-- that is missing, with that generation and no numbers. Nothing depends on this being respected, only fewer numbers are
-- burnt.
local tag = redis.call('HMGET', KEYS[1], 'generation', 'claim', 'claim_until_ms')
local now = now_ms()
if not tag[1] and ARGV[3] == '' then
    return {'missing'}
end
local wait_ms = (tonumber(tag[3] or '') or 0) - now
if tag[1] and tag[2] ~= ARGV[1] and wait_ms > 0 and wait_ms <= tonumber(ARGV[2]) then
    return {'claimed', text(wait_ms)}
end
local claim_until_ms = text(now + tonumber(ARGV[2]))
if tag[1] then
    redis.call('HSET', KEYS[1], 'claim', ARGV[1], 'claim_until_ms', claim_until_ms)
else
    redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'incarnation', '', 'end', '0', 'left', '0', 'next_end', '',
        'next_left', '0', 'durable_version', '0', 'version_base', '0', 'given', '0', 'raised_by', '0', 'raised_ms', '0',
        'low', '0', 'samples', '', 'sampled_ms', '0', 'claim', ARGV[1], 'claim_until_ms', claim_until_ms)
end
return {'yours'}
