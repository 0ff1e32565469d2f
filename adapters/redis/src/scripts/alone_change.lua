-- Replaces a tag's policies by ARGV[2]; its start and its mode stay.
local refused = refusal()
if refused then
    return refused
end
local options = redis.call('HGET', KEYS[1], 'options:' .. ARGV[1])
if not options then
    return {'missing'}
end
local fixed = string.match(options, '^start=%d+ mode=%l+ ')
if not fixed then
    return {'damaged', shown(options)}
end
redis.call('HSET', KEYS[1], 'options:' .. ARGV[1], fixed .. ARGV[2])
return {'done'}
