local function text(number)
    return string.format('%.0f', number)
end

local function now_ms()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Who this server is just now: its process, and the history of writes that it holds. Another process, and a server that
-- became a replica and then a master again, are another incarnation.
local function incarnation()
    local info = redis.call('INFO', 'server', 'replication')
    local run_id = string.match(info, 'run_id:(%x+)')
    local replication_id = string.match(info, 'master_replid:(%x+)')
    if not run_id or not replication_id then
        error({err = 'ERR unalike: INFO names no run_id and master_replid'})
    end
    return run_id .. ':' .. replication_id
end
