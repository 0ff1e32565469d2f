-- Writes the newest lease of a worker, the field ARGV[3]: ARGV[5] in the place of ARGV[4] ('' where there is none), for
-- the generation ARGV[1] and while the server is the incarnation ARGV[2] alone. Time is granted up to ARGV[6] (0 where
-- none is): ARGV[7] ms ahead of the clock at most, which may have gone back since, and not beyond the bound.
local hash = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', 'bound_ms', ARGV[3])
if hash[1] ~= ARGV[1] or hash[2] ~= ARGV[2] or incarnation() ~= ARGV[2] or (hash[4] or '') ~= ARGV[4] then
    return {'changed'}
end
local granted_until = ms('the end of a lease', ARGV[6])
if granted_until > now_ms() + ms('a horizon', ARGV[7]) or hash[3] and granted_until > ms('bound_ms', hash[3]) then
    return {'changed'}
end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[5])
return {'written'}
