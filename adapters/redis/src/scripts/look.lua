-- What there is of a tag. With ARGV[1], notes what was handed out so far if the newest note is so many ms old, and
-- forgets those that are older than half an hour, all but one.
local SAMPLES_MS = 30 * 60 * 1000
local tag = fields('end', 'left', 'next_end', 'next_left', 'given', 'raised_by', 'raised_ms', 'low', 'samples',
    'sampled_ms')
if not tag[1] then
    return {'missing'}
end
local now = now_ms()
local here = incarnation()
local used = tonumber(tag[7]) - tonumber(tag[4]) - tonumber(tag[6])
local samples = tag[11]
if ARGV[1] ~= '' and math.abs(now - tonumber(tag[12])) >= tonumber(ARGV[1]) then
    local kept, before = {}, nil
    for sample, at in string.gmatch(samples, '((%d+) %d+;)') do
        if tonumber(at) > now then
            break
        elseif tonumber(at) < now - SAMPLES_MS then
            before = sample
        else
            kept[#kept + 1] = sample
        end
    end
    samples = (before or '') .. table.concat(kept) .. text(now) .. ' ' .. text(used) .. ';'
    redis.call('HSET', KEYS[1], 'samples', samples, 'sampled_ms', text(now))
end
local is_valid = tag[2] == here and '1' or '0'
return {'here', tag[1], here, is_valid, tag[3], tag[4], tag[5], tag[6], text(used), tag[8], tag[9], tag[10], samples,
    text(now)}
