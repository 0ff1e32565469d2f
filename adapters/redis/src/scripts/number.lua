-- Numbers of 0 to 2^63 - 1 as texts without leading zeros. Lua's own numbers are exact below 2^53 only, so nothing is
-- calculated with these here: the server adds, and the sum is read back as the text that it keeps.
local NUMBER_MAX = '9223372036854775807'

-- Whether a number is below another one. By bytes, for `<` goes by the server's locale.
local function below(a, b)
    if #a ~= #b then
        return #a < #b
    end
    for at = 1, #a do
        local x, y = string.byte(a, at), string.byte(b, at)
        if x ~= y then
            return x < y
        end
    end
    return false
end

-- Whether a text is such a number.
local function is_number(text)
    return (text == '0' or string.match(text, '^[1-9]%d*$') ~= nil) and not below(NUMBER_MAX, text)
end

-- What can be said of a text that is none.
local function shown(text)
    return (string.gsub(string.sub(text, 1, 32), '[^ -~]', '?'))
end
