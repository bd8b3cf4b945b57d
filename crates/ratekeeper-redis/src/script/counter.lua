-- What both scripts know of counters. Their format in bytes and all arithmetic are those of ratekeeper-core's
-- `algorithm`, to the bit. Numbers here are floating point, but whole and below 2^53 wherever a decision
-- depends on them. Where a quota changes, the core computes in floating point, too.

local U32 = 4294967295
-- 2^48, and the longest time that any debt takes to be paid off.
local HIGH, LONGEST = 281474976710656, 4503599627370496
local PERIODS = { [0] = 1e6, 6e7, 3.6e9, 8.64e10 }

-- How many bytes a number takes.
local function width(n)
  if n < 256 then return 1 elseif n < 65536 then return 2 elseif n < 16777216 then return 3 end
  return 4
end

local function number(value, from, wide)
  return (read('<I' .. wide, value, from))
end

-- The microsecond at which a bucket is full, and whether it owes, which is in the uppermost bit. With that
-- bit, the number would be too large to be exact.
local function read_full(value, from)
  local low, high = read('<I6B', value, from)
  if high >= 128 then return low + (high - 128) * HIGH, true end
  return low + high * HIGH, false
end

-- Whether this many units in this many microseconds are the rate of any quota: in lowest terms, and not
-- faster than all of them. Under a quota of another rate, fractions of a microsecond would mean something
-- else.
local function is_rate(units, micros)
  if units == 1 then return true end
  if units * ceil(1000 / micros) > U32 then return false end
  while micros > 0 do units, micros = micros, units % micros end
  return units == 1
end

-- What the head of a value says: algorithm, units and microseconds of the rate (or the period), where the
-- rest begins, and how wide a fraction of a microsecond (or a log's costs) is. Nil if it is not the head of a
-- counter.
local function read_head(value)
  local tag = byte(value, 1)
  if not tag then return nil end
  local algorithm = tag % 5
  local form = (tag - algorithm) / 5
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    local wide, parts, scale = form % 7 + 1, floor(form / 7), 1
    if form >= 35 then
      wide, parts, scale = form - 34, 0, 1000
      if wide > 6 then return nil end
    end
    local from = 2 + wide + parts
    if #value ~= from + 6 + parts then return nil end
    local micros, units = number(value, 2, wide) * scale, 1
    if parts > 0 then units = number(value, 2 + wide, parts) end
    if micros == 0 or micros >= EXACT or units == 0 or read_full(value, from) >= EXACT then return nil end
    if parts > 0 and (number(value, from + 7, parts) >= units or not is_rate(units, micros)) then return nil end
    return algorithm, units, micros, from, parts
  end
  local period, costs, from = form % 5, floor(form / 5) + 1, 2
  local micros = PERIODS[period]
  if not micros then
    if #value < 8 then return nil end
    micros, from = number(value, 2, 7), 9
  end
  if micros == 0 or micros >= EXACT then return nil end
  local rest = #value - from + 1
  if algorithm == FIXED_WINDOW then
    if costs ~= 1 or rest < 8 or rest > 11 or number(value, from, 7) >= EXACT then return nil end
  elseif algorithm == SLIDING_WINDOW then
    if costs ~= 1 or rest < 8 or rest > 14 or rest % 2 ~= 0 then return nil end
    if number(value, from, 6) >= floor(EXACT / micros) then return nil end
  elseif costs > 4 or rest < 4 or (rest - 4) % (7 + costs) ~= 0 then
    return nil
  end
  return algorithm, 1, micros, from, costs
end

-- A bucket: the microsecond at which it is full, the fraction of one, and whether it owes.
local function read_bucket(value, from, parts)
  local micros, owes = read_full(value, from)
  if parts == 0 then return micros, 0, owes end
  return micros, number(value, from + 7, parts), owes
end

-- How long this many units of a rate take to come back, exactly, up to the longest that any bucket takes.
local function span(cost, units, micros)
  local whole = floor(micros / units)
  local rest = micros - whole * units
  local high, low = floor(cost / 65536), cost % 65536
  local a = high * rest
  local a_whole = floor(a / units)
  local b = (a - a_whole * units) * 65536 + low * rest
  local b_whole = floor(b / units)
  local time = cost * whole + a_whole * 65536 + b_whole
  if time >= LONGEST then return LONGEST, 0 end
  return time, b - b_whole * units
end

-- How long a bucket that owes takes at most to be full.
local function longest_debt(t)
  local micros, parts = 2 * t.fill, 2 * t.fill_parts
  if parts >= t.units then micros, parts = micros + 1, parts - t.units end
  if micros >= LONGEST then micros, parts = LONGEST, 0 end
  if micros == t.fill and parts < t.fill_parts then parts = t.fill_parts end
  return micros, parts
end

-- A fixed window as of now: its start and its count, and whether the clock was set back.
local function read_fixed_window(value, from, period, now)
  local start, count = number(value, from, 7), number(value, from + 7, #value - from - 6)
  if count > 0 then
    if start > now then return now, count, true end
    if start + period > now then return start, count, false end
  end
  return now - now % period, 0, false
end

-- A sliding window as of now: its number, the count of the one before and its own, and whether the clock was
-- set back.
local function read_sliding_window(value, from, period, now)
  local index, wide = number(value, from, 6), (#value - from - 5) / 2
  local previous, current = number(value, from + 6, wide), number(value, from + 6 + wide, wide)
  local here = floor(now / period)
  if index == here then return here, previous, current, false end
  if index > here then return here, 0, math.min(previous + current, U32), true end
  if index + 1 == here then return here, current, 0, false end
  return here, 0, 0, false
end

-- Whether a log is valid: oldest entries first, and the sum of all their costs is right.
local function is_log(value, from, costs)
  local sum, last = 0, 0
  for entry = from + 4, #value, 7 + costs do
    local moment = number(value, entry, 7)
    if moment < last then return false end
    sum, last = sum + number(value, entry + 7, costs), moment
  end
  return last < EXACT and sum == number(value, from, 4)
end

-- A log as of now: the cost of all, the entries that count, the moment of the newest (0 if there is none),
-- whether the clock was set back, and whether entries have left. The log is not searched, so a value that is
-- not a log is noticed only where its ends do not fit.
local function read_log(value, from, costs, period, now)
  local total, first, size = number(value, from, 4), from + 4, 7 + costs
  if first > #value then return 0, '', 0, false, false end
  local newest, set_back = number(value, #value - size + 1, 7), false
  if newest > now then
    if not is_log(value, from, costs) then return 0, '', 0, false, true end
    -- Entries in the future are treated as of now.
    local entries = {}
    for entry = first, #value, size do
      local moment = number(value, entry, 7)
      entries[#entries + 1] = moment > now and write('<I7', now) .. sub(value, entry + 7, entry + size - 1)
        or sub(value, entry, entry + size - 1)
    end
    value, first, newest, set_back = table.concat(entries), 1, now, true
  end
  if newest + period <= now then return 0, '', 0, false, true end
  local at = first
  while number(value, at, 7) + period <= now do
    total = total - number(value, at + 7, costs)
    at = at + size
  end
  local ends = number(value, at + 7, costs)
  if at + size <= #value then ends = ends + number(value, #value - costs + 1, costs) end
  local most = (#value - at + 1) / size * (256 ^ costs - 1)
  if total < ends or total > most or number(value, at, 7) > newest then return 0, '', 0, false, true end
  return total, sub(value, at), newest, set_back, at > first
end

local function write_bucket(head, micros, parts, parts_wide, owes)
  local text = write('<I7', micros)
  if owes then text = sub(text, 1, 6) .. char(byte(text, 7) + 128) end
  if parts_wide == 0 then return head .. text end
  return head .. text .. write('<I' .. parts_wide, parts)
end

local function write_fixed_window(head, start, count)
  return head .. write('<I7I' .. width(count), start, count)
end

local function write_sliding_window(head, index, previous, current)
  local wide = width(math.max(previous, current))
  return head .. write('<I6I' .. wide .. 'I' .. wide, index, previous, current)
end

-- a × b in parts of twenty bits, the upper ones first. `a` is below 2^32 and `b` below 2^53.
local function product(a, b)
  local low, mid, high = b % 1048576, floor(b / 1048576) % 1048576, floor(b / 1099511627776)
  low = a * low
  mid = a * mid + floor(low / 1048576)
  return a * high + floor(mid / 1048576), mid % 1048576, low % 1048576
end

-- Whether a × b ≤ c × d.
local function at_most(a, b, c, d)
  local left, right = a * b, c * d
  if left < EXACT and right < EXACT then return left <= right end
  local a1, a2, a3 = product(a, b)
  local b1, b2, b3 = product(c, d)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  return a3 <= b3
end

-- The bytes to write for a counter.
local function with_room(value)
  if #value <= LONG then return value end
  local algorithm, _, _, from, wide = read_head(value)
  if algorithm ~= SLIDING_LOG then return value end
  return value .. room_for_log(value, (#value - from - 3) / (7 + wide), 7 + wide)
end

-- From here on, long logs consist of nothing but entries.
for k = 1, #keys do
  local value = values[k]
  if value and #value > LONG then
    local algorithm, _, _, from, wide = read_head(value)
    if algorithm == SLIDING_LOG then
      local first, free = ends_of_log(value, from + 4, 7 + wide)
      if first > from + 4 or free <= #value then
        values[k] = sub(value, 1, from + 3) .. sub(value, first, free - 1)
      end
    end
  end
end
