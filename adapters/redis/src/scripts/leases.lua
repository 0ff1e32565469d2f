-- The hash of one lease namespace. It never expires, and it is lost as a whole, or not at all.
--
--   generation          a random word, another one after each change but that of a worker
--   incarnation         the server that granted the leases; another one's are void
--   binding             the layout, the horizon and the floor of the namespace: `timestamp_bits=41 ..`
--   bound_ms            with a durable store: the time that it granted ends there, and so does every lease
--   begun_by            without one: `command`, `use` or `loss`, what the namespace last began anew by
--   worker:N            the newest lease of a worker: `GRANT_ID not_before valid_until acquired is_final HOLDER`
--   claim, claim_until_ms, low  who is getting more time just now
--
-- Rust decides, and names what it has seen: a script writes if that is still so. All ms are below 2^53, so Lua's are
-- exact.
local MS_MAX = 9007199254740991

local function ms(name, field)
    if not field or not string.find(field, '^%d+$') or #field > 16 or tonumber(field) > MS_MAX then
        error({err = 'DAMAGED ' .. name .. ' is ' .. tostring(field)})
    end
    return tonumber(field)
end

-- Gives the namespace these fields and takes all workers from it: what was granted before is void. The one write that
-- can fail comes first.
local function begin(...)
    local names = redis.call('HKEYS', KEYS[1])
    redis.call('HSET', KEYS[1], ...)
    for _, name in ipairs(names) do
        if string.sub(name, 1, 7) == 'worker:' then
            redis.call('HDEL', KEYS[1], name)
        end
    end
end
