-- Gives this server the numbers ARGV[4] .. ARGV[5] - 1, ARGV[6] of them, granted by the durable store under the version
-- ARGV[7]: at most once, for the generation ARGV[1] becomes ARGV[3], and only while the server is the incarnation
-- ARGV[2]. ARGV[8] is the new `low`.
local tag = fields('end', 'left', 'next_end', 'next_left', 'version_base', 'given')
local here = incarnation()
if tag[1] ~= ARGV[1] then
    return {'refused', 'somebody changed the tag'}
end
if here ~= ARGV[2] then
    return {'refused', 'the server is another incarnation'}
end
if recorded_other() then
    return {'refused', 'another durable store grants the numbers now'}
end
local finish, left, next_end, next_left = tag[3], tonumber(tag[4]), tag[5], tonumber(tag[6])
local version = tonumber(tag[7]) - left - next_left
local used = tonumber(tag[8]) - left - next_left
local count = tonumber(ARGV[6])
if tag[2] ~= here or left + next_left == 0 then
    finish, left, next_end, next_left = ARGV[5], count, '', 0
elseif next_left > 0 then
    if next_end ~= ARGV[4] then
        return {'refused', 'there are two intervals already'}
    end
    next_end, next_left = ARGV[5], next_left + count
elseif finish == ARGV[4] then
    finish, left = ARGV[5], left + count
else
    next_end, next_left = ARGV[5], count
end
local held = left + next_left
if held > NUMBERS_MAX then
    return {'refused', 'the numbers left are beyond 2^53'}
end
local version_base, given = version + held + 1, used + held
-- What only ever grows begins anew before it is too great: versions are compared within one generation.
if version_base > NUMBERS_MAX or given > NUMBERS_MAX then
    version_base, given = held, held
end
redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'incarnation', here, 'end', finish, 'left', text(left),
    'next_end', next_end, 'next_left', text(next_left), 'durable_version', ARGV[7], 'version_base', text(version_base),
    'given', text(given), 'raised_by', ARGV[6], 'raised_ms', text(now_ms()), 'low', ARGV[8], 'claim', '',
    'claim_until_ms', '0')
return {'installed'}
