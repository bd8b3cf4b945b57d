-- Settles what was charged: gives back, or takes what is due whether or not it fits.
--
-- KEYS: the counters. ARGV[1], packed by `settlement.rs`: a time if it is not to be the server's, the number
-- of settlements, and the settlements one after the other. Returns how many counters have changed.

local read, write, call = struct.unpack, struct.pack, redis.call
local floor, ceil, byte, char, sub = math.floor, math.ceil, string.byte, string.char, string.sub
local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, LEAKY_BUCKET = 0, 1, 2, 3, 4
local EXACT = 9007199254740992

local ask, keys = ARGV[1], KEYS
local now, count, at = read('<dH', ask)
-- If the time was passed to the script, it is unknown how fast that clock runs. If it is the server's, a
-- counter is kept until the millisecond in which it ends. That expiry is absolute, because the script may
-- have begun some time before it reads the time.
local AT, origin = 'PX', 3600000000
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  AT, origin = 'PXAT', now
end
local values = call('MGET', unpack(keys))
