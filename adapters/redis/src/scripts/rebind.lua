-- Notes in KEYS[1], for all kinds of keys, that the durable store ARGV[1] grants their numbers from now on.
local before = {}
for _, kind in ipairs(redis.call('HKEYS', KEYS[1])) do
    before[#before + 1] = kind
    before[#before + 1] = redis.call('HGET', KEYS[1], kind)
    redis.call('HSET', KEYS[1], kind, ARGV[1])
end
return before
