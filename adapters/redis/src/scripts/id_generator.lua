-- The figures of a counter with a ceiling, and the greatest number that it may have handed out: the greatest of all
-- that say so. With ARGV[1], ends it: under a ceiling of 0 its own script hands out nothing, and what the ceiling was
-- stays in another field.
if redis.call('EXISTS', KEYS[1]) == 0 then
    return {'missing'}
end
local NAMES = {'max', 'cur', 'retired_max'}
local counter = redis.call('HMGET', KEYS[1], 'max', 'cur', 'retired_max', 'seq_recently', 'seq_long_term')
if not counter[1] then
    return {'damaged', 'max', 'missing'}
end
local watermark = '0'
for at, name in ipairs(NAMES) do
    -- What is missing counts as 0 for HINCRBY too.
    counter[at] = counter[at] or '0'
    if not is_number(counter[at]) then
        return {'damaged', name, shown(counter[at])}
    end
    if below(watermark, counter[at]) then
        watermark = counter[at]
    end
end
if ARGV[1] ~= '' then
    redis.call('HSET', KEYS[1], 'max', '0', 'retired_max', watermark)
end
return {'here', watermark, counter[1], counter[2], shown(counter[4] or '0'), shown(counter[5] or '0')}
