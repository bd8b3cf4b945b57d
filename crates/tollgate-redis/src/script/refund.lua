-- Gives back what was charged to one counter.
--
-- KEYS[1]: the counter. ARGV[1], packed: a time if it is not to be the server's; the cost; when it was charged (-1 if
-- any charge will do), and when the budget was going to be whole after that.

local now, cost, charged, reset = read('<dddd', ARGV[1])
-- Of a time that was handed to the script, nobody knows how fast it goes.
local given = now > 0
if not given then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
local value = redis.call('MGET', key)[1]
if not value then return 0 end
local algorithm, units, micros, from, wide = read_head(value)
if not algorithm then return 0 end
local head = sub(value, 1, from - 1)

local function put(new, left)
  if left > 0 then
    -- If it is the server's time: until the millisecond in which it ends, as the script may have begun some time before
    -- it was told the time.
    if given then
      redis.call('PSETEX', key, ceil(left / 1000) + 3600000, new)
    else
      redis.call('SET', key, new, 'PXAT', ceil((now + left) / 1000))
    end
  else
    redis.call('DEL', key)
  end
  return 1
end

if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
  local full, parts = read_bucket(value, from, wide)
  local left = full - now
  if left < 0 then return 0 end
  if algorithm == LEAKY_BUCKET then
    -- Only the last in line can go.
    if charged < 0 or reset ~= now + left + (parts > 0 and 1 or 0) then return 0 end
  end
  -- The time that the cost takes, exactly: cost × micros ÷ units.
  local whole = floor(micros / units)
  local rest = micros - whole * units
  local high, low = floor(cost / 65536), cost % 65536
  local a = high * rest
  local a_whole = floor(a / units)
  local b = (a - a_whole * units) * 65536 + low * rest
  local b_whole = floor(b / units)
  local back, back_parts = cost * whole + a_whole * 65536 + b_whole, b - b_whole * units
  if algorithm == TOKEN_BUCKET and charged >= 0 then
    -- What has come back by itself does not come back a second time.
    local due = math.max(reset - now, 0)
    if back > due or (back == due and back_parts > 0) then back, back_parts = due, 0 end
  end
  if back > left or (back == left and back_parts >= parts) then return put('', 0) end
  left, parts = left - back, parts - back_parts
  if parts < 0 then left, parts = left - 1, parts + units end
  local grid = math.min(math.max(8 * micros / units, 1000), 3.6e9)
  full = now + left
  return put(write_bucket(head, full, parts, wide), full - full % grid + 2 * grid - now)
elseif algorithm == FIXED_WINDOW then
  local start, count = read_fixed_window(value, from, micros, now)
  if charged >= 0 and charged < start then return 0 end
  if count <= cost then return put('', 0) end
  return put(write_fixed_window(head, start, count - cost), start + micros - now)
elseif algorithm == SLIDING_WINDOW then
  local index, previous, current = read_sliding_window(value, from, micros, now)
  local window = charged >= 0 and floor(charged / micros) or index
  if window >= index then
    current = math.max(current - cost, 0)
  elseif window + 1 == index then
    previous = math.max(previous - cost, 0)
  end
  local windows = current > 0 and 2 or (previous > 0 and 1 or 0)
  return put(write_sliding_window(head, index, previous, current), (index + windows) * micros - now)
end

local total, entries, newest = read_log(value, from, wide, micros, now)
local size = 7 + wide
-- From the newest on, what is left of the entries that are looked at; those before them stay as they are.
local kept, entry = {}, #entries - size + 1
while entry > 0 do
  local moment, units_of = number(entries, entry, 7), number(entries, entry + 7, wide)
  if charged < 0 or moment == charged then
    local struck = math.min(cost, units_of)
    units_of, total, cost = units_of - struck, total - struck, cost - struck
  end
  if units_of > 0 then table.insert(kept, write('<I7I' .. wide, moment, units_of)) end
  entry = entry - size
  if cost == 0 or (charged >= 0 and moment < charged) then break end
end
for i = 1, floor(#kept / 2) do kept[i], kept[#kept + 1 - i] = kept[#kept + 1 - i], kept[i] end
entries = sub(entries, 1, entry + size - 1) .. table.concat(kept)
if entries == '' then return put('', 0) end
newest = number(entries, #entries - size + 1, 7)
return put(head .. write('<I4', math.max(total, 0)) .. entries, newest + micros - now)
