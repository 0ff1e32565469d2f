-- Begins a namespace anew that no durable store stands behind, if its generation is ARGV[1] ('' where there is no hash)
-- and the server the incarnation ARGV[2]: with the generation ARGV[3] and the binding ARGV[4], by ARGV[5].
local generation = redis.call('HGET', KEYS[1], 'generation') or ''
if generation ~= ARGV[1] or incarnation() ~= ARGV[2] then
    return {'changed'}
end
begin('generation', ARGV[3], 'incarnation', ARGV[2], 'binding', ARGV[4], 'begun_by', ARGV[5])
return {'begun'}
