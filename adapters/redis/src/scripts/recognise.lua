-- Notes which durable store grants the numbers of a kind of keys, or says that it is another one.
local other = other_durable()
if other then
    return {'other', other}
end
return {'this'}
