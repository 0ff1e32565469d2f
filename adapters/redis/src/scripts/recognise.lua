-- Notes which durable store grants the numbers of a kind of keys, or says that it is another one.
local other = recorded_other()
if other then
    return {'other', other}
end
return {'this'}
