-- Notes in the hash KEYS[1] that the durable store ARGV[3] grants its numbers from now on, if ARGV[2] did. ARGV[1] is
-- the kind of the hash. One that knows none knows the first one that grants something.
local recorded = redis.call('HGET', KEYS[1], ARGV[1])
if recorded and recorded ~= ARGV[2] and recorded ~= ARGV[3] then
    return {'other', ARGV[1], recorded}
end
if recorded then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return {'noted'}
