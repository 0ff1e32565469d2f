-- Grants up to ARGV[1] numbers.
local tag = fields('end', 'left', 'next_end', 'next_left', 'version_base', 'durable_version', 'low')
if not tag[1] then
    return {'missing'}
end
if tag[2] ~= incarnation() then
    return {'void'}
end
local finish, left, next_end, next_left = tag[3], tonumber(tag[4]), tag[5], tonumber(tag[6])
if left + next_left == 0 then
    return {'spent'}
end
local count = tonumber(ARGV[1])
if left > 0 then
    count = math.min(count, left)
    redis.call('HINCRBY', KEYS[1], 'left', '-' .. text(count))
else
    finish, left, next_end, next_left = next_end, next_left, '', 0
    count = math.min(count, left)
    redis.call('HSET', KEYS[1], 'end', finish, 'left', text(left - count), 'next_end', '', 'next_left', '0')
end
local version = tonumber(tag[7]) - (left - count) - next_left
return {'granted', tag[1], finish, text(left), text(count), next_end, text(next_left), text(version), tag[8], tag[9]}
