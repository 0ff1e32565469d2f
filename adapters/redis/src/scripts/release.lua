-- Takes back ARGV[3] numbers of the newest grant, if nothing happened since: the generation is ARGV[1], the version
-- ARGV[2].
local tag = fields('left', 'next_left', 'version_base')
if not tag[1] or tag[1] ~= ARGV[1] or tag[2] ~= incarnation() then
    return {'kept'}
end
local left, base = tonumber(tag[3]), tonumber(tag[5])
if text(base - left - tonumber(tag[4])) ~= ARGV[2] then
    return {'kept'}
end
-- The version grows by `count` although as many numbers more are left.
local count = tonumber(ARGV[3])
if base + 2 * count > NUMBERS_MAX then
    return {'kept'}
end
redis.call('HSET', KEYS[1], 'left', text(left + count), 'version_base', text(base + 2 * count))
return {'taken'}
