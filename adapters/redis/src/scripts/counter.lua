-- What all scripts of a counter check before they write: the last number, or an answer that says why there is none.
local function checked()
    if not is_initialised() then
        return nil, {'void'}
    end
    local last = read()
    if not last then
        return nil, {'missing'}
    end
    if not is_number(last) then
        return nil, {'damaged', shown(last)}
    end
    return last, nil
end
