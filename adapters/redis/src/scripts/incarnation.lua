-- Who this server is just now: its process, and the history of writes that it holds. Another process, and a server that
-- became a replica and then a master again, are another incarnation. Both names have 40 characters.
local function incarnation()
    local info = redis.call('INFO', 'server', 'replication')
    -- Plain searches: a pattern takes longer than all else in a script.
    local function named(name)
        local _, last = string.find(info, name, 1, true)
        if not last then
            error({err = 'ERR unalike: INFO names no ' .. name})
        end
        return string.sub(info, last + 1, last + 40)
    end
    return named('run_id:') .. ':' .. named('master_replid:')
end
