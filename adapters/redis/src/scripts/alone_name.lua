-- The marker, which is the name of the store. Before stores had names it was 1: that becomes the name ARGV[1].
incarnation()
local marker = redis.call('HGET', KEYS[1], 'marker')
if not marker then
    return {'void'}
end
if marker == '1' then
    marker = ARGV[1]
    redis.call('HSET', KEYS[1], 'marker', marker)
end
return {'done', shown(marker)}
