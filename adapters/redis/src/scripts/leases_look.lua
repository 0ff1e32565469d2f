-- What there is of a namespace, and what time it is: the fields ARGV[1] .., or all.
local answer = {incarnation(), text(now_ms())}
if #ARGV == 0 then
    for _, part in ipairs(redis.call('HGETALL', KEYS[1])) do
        answer[#answer + 1] = part
    end
    return answer
end
for index, field in ipairs(redis.call('HMGET', KEYS[1], unpack(ARGV))) do
    if field then
        answer[#answer + 1] = ARGV[index]
        answer[#answer + 1] = field
    end
end
return answer
