-- What all scripts of a counter check before they write: the last number, or an answer that says why there is none.
local function checked()
    local refused = refusal()
    if refused then
        return nil, refused
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
