-- The hash of one tag: what a durable store granted to this Redis, and what is left of it.
--
--   generation          a random word, another one after each change but a grant: whoever changes it names the one it saw
--   incarnation         the server that the numbers were granted to; to another one they are void
--   end, left           numbers end - left .. end - 1 are left; `end` is a text, for it may be too great for a Lua number
--   next_end, next_left the same of a second interval, which comes after the first one
--   durable_version     the version of the durable store's row at the newest grant, a text
--   version_base        version_base - left - next_left grows with everything that happens to the numbers
--   given               given - left - next_left is how many were handed out
--   raised_by, raised_ms  how many numbers the newest grant had, and when
--   low                 when fewer are left, more are due
--   samples, sampled_ms what had been handed out at points of the last half hour: `ms used;ms used;..`
--   claim, claim_until_ms  who is getting more just now
--
-- All numbers in Lua are below 2^53, so they are exact.
local NUMBERS_MAX = 9007199254740991

local function check(name, field)
    local is_long = name == 'end' or name == 'next_end' or name == 'durable_version' or name == 'low'
    local is_right = field and (name == 'samples' or field == '' and name == 'next_end'
        or field ~= '' and not string.find(field, '%D') and (is_long or tonumber(field) <= NUMBERS_MAX))
    if not is_right then
        error({err = 'DAMAGED ' .. name .. ' is ' .. tostring(field)})
    end
end

-- The generation, the incarnation and other fields; no generation means that there is no such tag. What somebody else
-- removed or changed is an error before anything is done.
local function fields(...)
    local tag = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', ...)
    for index = 3, tag[1] and #tag or 0 do
        local field = tag[index]
        -- Up to 15 digits are right in any case; so are most fields of most tags.
        if not field or field == '' or #field > 15 or string.find(field, '%D') then
            check((select(index - 2, ...)), field)
        end
    end
    return tag
end
