-- Who this server is just now: its process, and the history of writes that it holds. Another process, and a server that
-- became a replica and then a master again, are another incarnation. A replica is none: even one that takes writes, for
-- what its master writes comes on top of them.
local function incarnation()
    local info = redis.call('INFO', 'server', 'replication')
    local run_id = string.match(info, 'run_id:(%x+)')
    local replication_id = string.match(info, 'master_replid:(%x+)')
    if not run_id or not replication_id then
        error({err = 'ERR unalike: INFO names no run_id and master_replid'})
    end
    if string.match(info, 'role:(%a+)') ~= 'master' then
        error({err = 'READONLY unalike: a replica has no numbers of its own'})
    end
    return run_id .. ':' .. replication_id
end
