local function text(number)
    return string.format('%.0f', number)
end

local function now_ms()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Who this server is just now: its process, and the history of writes that it holds. Another process, and a server that
-- became a replica and then a master again, are another incarnation. A replica is none: even one that takes writes, for
-- what its master writes comes on top of them. Both names have 40 characters. In a Cluster the node's epoch follows: it
-- grows before a slot that went to another node is served here again, perhaps with an older hash.
local function incarnation()
    local info = redis.call('INFO', 'server', 'replication', 'cluster')
    -- Plain searches: a pattern takes longer than all else in a script.
    local _, run_id = string.find(info, '\nrun_id:', 1, true)
    local _, role = string.find(info, '\nrole:', run_id, true)
    local _, replication_id = string.find(info, '\nmaster_replid:', role, true)
    if not replication_id then
        error({err = 'ERR unalike: INFO names no run_id, role and master_replid'})
    end
    if string.sub(info, role + 1, role + 6) ~= 'master' then
        error({err = 'READONLY unalike: a replica has no numbers of its own'})
    end
    local here = string.sub(info, run_id + 1, run_id + 40) .. ':' ..
        string.sub(info, replication_id + 1, replication_id + 40)
    if not string.find(info, '\ncluster_enabled:1', replication_id, true) then
        return here
    end
    local cluster = redis.call('CLUSTER', 'INFO')
    local _, name = string.find(cluster, '\ncluster_my_epoch:', 1, true)
    local epoch = name and string.match(cluster, '^%d+', name + 1)
    if not epoch then
        error({err = 'ERR unalike: CLUSTER INFO names no cluster_my_epoch'})
    end
    return here .. ':' .. epoch
end
