-- What the hash KEYS[1] has in the field ARGV[1]; empty where it has none.
return {redis.call('HGET', KEYS[1], ARGV[1]) or ''}
