-- Replaces a text of rules, and notifies all listeners.
--
-- KEYS[1]  the key of the rules, which is also the channel
-- ARGV[1]  the format: toml, json or yaml
-- ARGV[2]  the text
--
-- Returns the number of the new set, which is one more than that of the last.
local version = redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HSET', KEYS[1], 'format', ARGV[1], 'body', ARGV[2])
redis.call('PUBLISH', KEYS[1], version)
return version
