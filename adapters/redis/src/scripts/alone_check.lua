-- Writes, and changes nothing. A replica takes no writes, whatever its settings say.
local refused = refusal()
if refused then
    return refused
end
redis.call('HSET', KEYS[1], 'marker', ARGV[#ARGV])
return {'done'}
