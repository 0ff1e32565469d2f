-- Creates a tag whose first number comes behind ARGV[2], with the options ARGV[3], unless there are ARGV[4] tags.
if not is_initialised() then
    return {'void'}
end
if redis.call('HEXISTS', KEYS[1], 'options:' .. ARGV[1]) == 1 or read() then
    return {'exists'}
end
if (redis.call('HLEN', KEYS[1]) - 1) / 2 >= tonumber(ARGV[4]) then
    return {'limit'}
end
redis.call('HSET', KEYS[1], 'last:' .. ARGV[1], ARGV[2], 'options:' .. ARGV[1], ARGV[3])
return {'done'}
