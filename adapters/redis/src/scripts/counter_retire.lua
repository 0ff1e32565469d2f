-- Ends a counter: whoever adds to the greatest number there is gets an error. Answers the last number before.
local last, failed = checked()
if failed then
    return failed
end
write(NUMBER_MAX)
return {'done', last}
