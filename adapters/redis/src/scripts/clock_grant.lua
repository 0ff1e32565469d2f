-- Grants up to ARGV[1] ids of one tick, none below the sequence ARGV[3] of the tick ARGV[2]. Ticks count from ARGV[4]
-- (Unix ms), and are ARGV[5] ms ahead of the clock at most.
local hash = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', 'tick', 'sequence', 'end', 'low')
if not hash[1] then
    return {'missing'}
end
if hash[2] ~= incarnation() then
    return {'void'}
end
local now, epoch = now_ms(), tonumber(ARGV[4])
local tick, sequence = next_id(tonumber(hash[3]), tonumber(hash[4]), now - epoch, tonumber(ARGV[2]), tonumber(ARGV[3]))
if tick - (now - epoch) > tonumber(ARGV[5]) then
    return {'ahead', text(now), text(tick)}
end
local left = tonumber(hash[5]) - tick
if left <= 0 then
    return {'spent'}
end
local count = math.min(tonumber(ARGV[1]), SEQUENCES - sequence)
redis.call('HSET', KEYS[1], 'tick', text(tick), 'sequence', text(sequence + count))
return {'granted', text(tick), text(sequence), text(count), text(left), hash[6]}
