-- Long logs, which are changed where they are: each copy of a string takes Lua a look at every byte. In one of more bytes than
-- LONG what has left is made zero, and behind the newest entry there may be room for others, with a moment that is none.
-- So all moments are in order.
local LONG, NO_MOMENT = 384, string.rep('\255', 7)

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

