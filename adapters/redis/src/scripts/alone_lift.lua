-- Goes on with a hash that was restored from a backup, under the name ARGV[3]: lifts the last number of each tag by
-- ARGV[1], or to the end where it is above ARGV[2], and so the floor of new tags. A tag that begins with ARGV[4] is a
-- format, and stays. One that begins with ARGV[5], or has ARGV[6] in it, is time, which is not counted in ids: nothing
-- is lifted beside it. Answers how many tags were lifted.
local refused = refusal()
if refused then
    return refused
end
local function begins(name, beginning)
    return string.sub(name, 1, #beginning) == beginning
end
local fields, lasts, tags = redis.call('HGETALL', KEYS[1]), {floor = '0'}, 0
for at = 1, #fields, 2 do
    local field, last = fields[at], fields[at + 1]
    local tag = begins(field, 'last:') and string.sub(field, 6)
    if (tag or field == 'floor') and not is_number(last) then
        return {'damaged', shown(field)}
    end
    if tag and (begins(tag, ARGV[5]) or string.find(tag, ARGV[6], 1, true)) then
        return {'time', shown(tag)}
    end
    if tag and not begins(tag, ARGV[4]) then
        lasts[field] = last
        tags = tags + 1
    elseif field == 'floor' then
        lasts[field] = last
    end
end
-- The one write that can fail comes first.
redis.call('HSET', KEYS[1], 'marker', ARGV[3])
for field, last in pairs(lasts) do
    if below(ARGV[2], last) then
        redis.call('HSET', KEYS[1], field, NUMBER_MAX)
    else
        redis.call('HINCRBY', KEYS[1], field, ARGV[1])
    end
end
return {'done', text(tags)}
