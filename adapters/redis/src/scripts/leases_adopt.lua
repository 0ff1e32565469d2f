-- Makes this server's incarnation ARGV[3] that of the leases that it granted as ARGV[2], if the generation is ARGV[1]
-- and nothing was lost in between.
--
-- The replication id of a process changes in three ways. Its first replica comes; the last has been gone for
-- repl-backlog-ttl; or it was a replica and became a master. Only the third may have brought back an older hash. It
-- leaves the id of the master before in master_replid2, which the first two clear, and what came from that master in
-- total_net_repl_input_bytes, which they leave alone. Another epoch of a Cluster's node is a loss: the hash may have been
-- away. It stands behind two names of 40 characters.
local hash = redis.call('HMGET', KEYS[1], 'generation', 'incarnation')
if hash[1] ~= ARGV[1] or hash[2] ~= ARGV[2] or incarnation() ~= ARGV[3] then
    return {'changed'}
end
if string.sub(ARGV[2], 82) ~= string.sub(ARGV[3], 82) then
    return {'lost'}
end
local info = redis.call('INFO', 'replication', 'stats')
local before = string.match(info, '\nmaster_replid2:(%x+)')
local received = string.match(info, '\ntotal_net_repl_input_bytes:(%d+)')
if not before or not string.find(before, '^0+$') or received ~= '0' then
    return {'lost'}
end
redis.call('HSET', KEYS[1], 'incarnation', ARGV[3])
return {'adopted'}
