-- Creates a tag whose first number comes behind ARGV[2], with the options ARGV[3], unless there are ARGV[4] tags. With
-- ARGV[5] it is a sub-key of that tag, which must not have ended; the field sub_keys counts it apart.
if not is_initialised() then
    return {'void'}
end
if redis.call('HEXISTS', KEYS[1], 'options:' .. ARGV[1]) == 1 or read() then
    return {'exists'}
end
if ARGV[5] ~= '' then
    if redis.call('HGET', KEYS[1], 'last:' .. ARGV[5]) == NUMBER_MAX then
        return {'spent'}
    end
    redis.call('HINCRBY', KEYS[1], 'sub_keys', 1)
else
    local sub_keys = redis.call('HGET', KEYS[1], 'sub_keys')
    -- The marker, and two fields of each.
    local fields = redis.call('HLEN', KEYS[1]) - 1 - (sub_keys and 1 or 0)
    if fields / 2 - tonumber(sub_keys or 0) >= tonumber(ARGV[4]) then
        return {'limit'}
    end
end
redis.call('HSET', KEYS[1], 'last:' .. ARGV[1], ARGV[2], 'options:' .. ARGV[1], ARGV[3])
return {'done'}
