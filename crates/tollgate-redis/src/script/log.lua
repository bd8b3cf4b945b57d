-- Long logs, which are changed where they are: each copy of a string takes Lua a look at every byte. In one of more bytes than
-- LONG what has left is made zero, and behind the newest entry there may be room for others, with a moment that is none.
-- So all moments are in order.
local LONG = 384

-- The room behind a log: as much as the memory allocator takes anyway, which is what Redis mostly has, in steps of a quarter of a
-- power of two.
local function room_for_log(value, size)
  if #value <= LONG then return '' end
  local bytes = #value + 10
  local _, power = math.frexp(bytes - 1)
  local step = 2 ^ (power - 3)
  local entries = math.floor((math.ceil(bytes / step) * step - bytes) / size)
  return string.rep(string.rep('\255', 7) .. string.rep('\0', size - 7), entries)
end

-- Where the entries of a log begin that count, and where they end.
local function ends_of_log(value, from, size)
  local ends = {}
  for i, above in ipairs({ 0, 9007199254740992 }) do
    local low, high = 0, (#value - from + 1) / size
    while low < high do
      local mid = math.floor((low + high) / 2)
      if struct.unpack('<I7', value, from + mid * size) > above then high = mid else low = mid + 1 end
    end
    ends[i] = from + low * size
  end
  return ends[1], ends[2]
end

