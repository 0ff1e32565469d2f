-- Grants ARGV[2] numbers, those behind the last one; or behind ARGV[3] if that is greater, up to ARGV[4]; or what is
-- left, if the last one is above ARGV[5]. Answers the number before the grant, and its last one.
local last, failed = checked()
if failed then
    return failed
end
if below(last, ARGV[3]) then
    write(ARGV[4])
    return {'done', ARGV[3], ARGV[4]}
end
if last == NUMBER_MAX then
    return {'spent'}
end
if below(ARGV[5], last) then
    write(NUMBER_MAX)
    return {'done', last, NUMBER_MAX}
end
add(ARGV[2])
return {'done', last, read()}
