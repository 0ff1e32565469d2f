-- Lifts the last number to ARGV[2] at least.
local last, failed = checked()
if failed then
    return failed
end
if below(last, ARGV[2]) then
    write(ARGV[2])
end
return {'done'}
