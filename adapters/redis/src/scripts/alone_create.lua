-- Creates a tag whose first number comes behind ARGV[2], with the options ARGV[3], unless there are ARGV[4] tags. With
-- ARGV[5] it is a sub-key of that tag, which must not have ended; the field sub_keys counts it apart. The floor is
-- added to ARGV[2]; one above ARGV[6] leaves the tag no number. Answers the last number that counts as granted.
local refused = refusal()
if refused then
    return refused
end
if redis.call('HGET', KEYS[1], 'options:' .. ARGV[1]) or read() then
    return {'exists'}
end
local floor = redis.call('HGET', KEYS[1], 'floor')
if floor and not is_number(floor) then
    return {'damaged', shown(floor)}
end
if ARGV[5] ~= '' then
    if redis.call('HGET', KEYS[1], 'last:' .. ARGV[5]) == NUMBER_MAX then
        return {'spent'}
    end
    redis.call('HINCRBY', KEYS[1], 'sub_keys', 1)
else
    local sub_keys = redis.call('HGET', KEYS[1], 'sub_keys')
    -- The marker, and two fields of each.
    local fields = redis.call('HLEN', KEYS[1]) - 1 - (sub_keys and 1 or 0) - (floor and 1 or 0)
    if fields / 2 - tonumber(sub_keys or 0) >= tonumber(ARGV[4]) then
        return {'limit'}
    end
end
local leaves_none = floor and below(ARGV[6], floor)
redis.call('HSET', KEYS[1], 'last:' .. ARGV[1], leaves_none and NUMBER_MAX or ARGV[2], 'options:' .. ARGV[1], ARGV[3])
if floor and not leaves_none then
    add(floor)
end
return {'done', read()}
