-- Long logs are changed in place. In a log of more than LONG bytes, entries that have left are set to zero,
-- and after the newest entry there may be room for more, filled with moments that cannot occur. So all
-- moments stay in order. The last place says where the entries begin and where they end.
local LONG = 384

-- The content of the last place of a log: where its entries begin and where the room begins, counted from
-- zero.
local function log_places(oldest, free, size)
  return struct.pack('<I3I3B', oldest, free, 255) .. string.rep('\0', size - 7)
end

-- Reads the same. If the last place is an entry, there is no room, and all places may be entries.
local function places_in_log(last, slots)
  local oldest, free, mark = struct.unpack('<I3I3B', last)
  if mark < 255 or oldest >= free or free >= slots or string.find(last, '[^%z]', 8) then return 0, 0 end
  return oldest, free
end

-- The room behind a log of this many entries: as much as the memory allocator takes anyway. The one that
-- Redis usually has allocates in steps of a quarter of a power of two.
local function room_for_log(value, entries, size)
  if #value <= LONG then return '' end
  local bytes = #value + 10
  local _, power = math.frexp(bytes - 1)
  local step = 2 ^ (power - 3)
  local room = math.floor((math.ceil(bytes / step) * step - bytes) / size)
  if room == 0 or entries > 16777215 then return '' end
  return string.rep(string.rep('\255', 7) .. string.rep('\0', size - 7), room - 1) .. log_places(0, entries, size)
end

-- Where the entries that count begin in a log, and where they end.
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

