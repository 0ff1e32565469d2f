-- Notes in KEYS[1] that the durable store ARGV[2] grants the numbers from now on, for all kinds of keys, if they were
-- granted by it or by ARGV[1] until now. Answers what was noted of each kind.
local before = {'noted'}
for _, kind in ipairs(redis.call('HKEYS', KEYS[1])) do
    local recorded = redis.call('HGET', KEYS[1], kind)
    if recorded ~= ARGV[1] and recorded ~= ARGV[2] then
        return {'other', kind, recorded}
    end
    before[#before + 1] = kind
    before[#before + 1] = recorded
end
for index = 2, #before, 2 do
    redis.call('HSET', KEYS[1], before[index], ARGV[2])
end
return before
