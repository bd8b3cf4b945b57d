local read, write = struct.unpack, struct.pack
local floor, ceil, byte, char = math.floor, math.ceil, string.byte, string.char
local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, LEAKY_BUCKET = 0, 1, 2, 3, 4
local EXACT = 9007199254740992
