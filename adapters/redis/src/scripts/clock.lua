-- The hash of one shard of a tag: the ticks that a durable store granted to this Redis, and how far it got. A tick is a
-- ms since the epoch of the ids.
--
--   generation          a random word, another one after each change but a grant: whoever changes it names the one it saw
--   incarnation         the server that the ticks were granted to; to another one they are void
--   tick, sequence      the tick of the newest id, and the first sequence in it that is free
--   end                 ids have ticks below this one
--   low                 when fewer ticks are left, more are due
--   claim, claim_until_ms  who is getting more just now
--
-- All numbers in Lua are below 2^53, so they are exact; ids are made elsewhere.
local SEQUENCES = 1024

-- Where the next id is: never before the newest one, not before the clock, and not below the sequence `at_sequence` of
-- the tick `at_tick`.
local function next_id(tick, sequence, now_tick, at_tick, at_sequence)
    if sequence >= SEQUENCES then
        tick, sequence = tick + 1, 0
    end
    if now_tick > tick then
        tick, sequence = now_tick, 0
    end
    if at_tick > tick then
        tick, sequence = at_tick, at_sequence
    elseif at_tick == tick then
        sequence = math.max(sequence, at_sequence)
    end
    return tick, sequence
end
