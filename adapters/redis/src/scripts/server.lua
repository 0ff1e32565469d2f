local function text(number)
    return string.format('%.0f', number)
end

local function now_ms()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Who this server is just now: its process, and the history of writes that it holds. Another process, and a server that
-- became a replica and then a master again, are another incarnation. A replica is none: even one that takes writes, for
-- what its master writes comes on top of them. Both names have 40 characters.
local function incarnation()
    local info = redis.call('INFO', 'server', 'replication')
    -- Plain searches: a pattern takes longer than all else in a script.
    local function behind(name)
        local _, last = string.find(info, '\n' .. name, 1, true)
        if not last then
            error({err = 'ERR unalike: INFO names no ' .. name})
        end
        return last + 1
    end
    local role = behind('role:')
    if string.sub(info, role, role + 5) ~= 'master' then
        error({err = 'READONLY unalike: a replica has no numbers of its own'})
    end
    local run_id, replication_id = behind('run_id:'), behind('master_replid:')
    return string.sub(info, run_id, run_id + 39) .. ':' .. string.sub(info, replication_id, replication_id + 39)
end
