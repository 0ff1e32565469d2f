-- Leaves at most ARGV[2] numbers of the first interval and ARGV[3] of the second one, and makes the generation ARGV[1]
-- ARGV[4]: what was to be installed, or given back, under the old one comes too late.
local tag = fields('left', 'next_left', 'given')
if not tag[1] then
    return {'missing'}
end
if tag[1] ~= ARGV[1] then
    return {'changed'}
end
local held = tonumber(tag[3]) + tonumber(tag[4])
local left = math.min(tonumber(tag[3]), tonumber(ARGV[2]))
local next_left = math.min(tonumber(tag[4]), tonumber(ARGV[3]))
-- Numbers that are skipped were not used.
local given = tonumber(tag[5]) - held + left + next_left
redis.call('HSET', KEYS[1], 'generation', ARGV[4], 'left', text(left), 'next_left', text(next_left), 'given', text(given))
return {'done'}
