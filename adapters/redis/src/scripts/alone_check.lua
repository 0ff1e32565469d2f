-- Writes, and changes nothing. A replica takes no writes, whatever its settings say.
incarnation()
local marker = redis.call('HGET', KEYS[1], 'marker')
if not marker then
    return {'void'}
end
redis.call('HSET', KEYS[1], 'marker', marker)
return {'done'}
