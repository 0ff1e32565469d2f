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

local function text(number)
    return string.format('%.0f', number)
end

local function now_ms()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
