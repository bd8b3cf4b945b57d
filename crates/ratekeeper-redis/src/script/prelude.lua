-- What both scripts share: the time, quotas, and the states of the five algorithms.
--
-- All arithmetic and the format in bytes are those of ratekeeper-core (`algorithm`, `codec`), to the bit. Numbers
-- are floating point, but whole and below 2^53 wherever a decision depends on them. Only where the units used
-- under one quota are carried over to another, the core computes in floating point, too.
--
-- ARGV[1] begins with two doubles: the moment after which nothing may be done (0: none), and the time to decide
-- at, in microseconds (0: the server's).
--
-- A state is up to three numbers, always as of now:
--   buckets: the microsecond at which the budget is full, and parts of one (as many to one as the rate has units)
--   fixed window: start, count
--   sliding window: number of the window, count of the window before, count
--   log: the log as it was read, the cost of all, how much of it is new
--
-- For each algorithm there are functions of a quota and a state: `load` reads it from bytes and returns it, when
-- the key expires, and whether the clock was set back; `store` returns the bytes and when the key is to expire;
-- `used` is the number of units used; `seed` makes a state of which this much is used (rounded up, except for what
-- may be an error of floating point); `cut` limits a state to
-- what the quota holds; `count` adds units that were admitted under another quota.

local read, write, call = struct.unpack, struct.pack, redis.call
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local byte, char, sub, rep = string.byte, string.char, string.sub, string.rep

local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, LEAKY_BUCKET = 0, 1, 2, 3, 4
-- 2^32 - 1; 2^48; the longest that any budget takes to be full; and the first number that may not be exact.
local U32, HIGH, LONGEST, EXACT = 4294967295, 281474976710656, 4503599627370496, 9007199254740992
-- The longest that a charge may wait, and the longest period, in microseconds.
local MAX_WAIT, MAX_PERIOD = 60000000, 316224000000000
local PERIODS = { [0] = 1e6, 6e7, 3.6e9, 8.64e10 }
-- The first byte of two counters.
local TWO = 255

local question, keys = ARGV[1], KEYS
local deadline, now, at = read('<dd', question)
local time = call('TIME')
-- What to add to a moment to get the server's time. It is unknown how fast a clock runs that is not the server's:
-- then keys are kept for an hour longer.
local to_server = 0
time = time[1] * 1000000 + time[2]
if now == 0 then now = time else to_server = time - now + 3.6e9 end

-- The expiry of a key, in milliseconds of the server's time. It is absolute, because the script may have begun
-- some time before it read the time. What counts nothing has expired already.
local function expiry(expires)
  return expires > now and ceil((expires + to_server) / 1000) .. '' or '1'
end

-- How many bytes a number takes.
local function width(n)
  if n < 256 then return 1 elseif n < 65536 then return 2 elseif n < 16777216 then return 3 end
  return 4
end

local function number(value, from, wide)
  return (read('<I' .. wide, value, from))
end

-- How long this many units take to come back, exactly, unless it is longer than any budget takes.
local function span(q, units)
  local whole = floor(q.micros / q.units)
  local rest = q.micros - whole * q.units
  local high, low = floor(units / 65536), units % 65536
  local upper = high * rest
  local upper_whole = floor(upper / q.units)
  local lower = (upper - upper_whole * q.units) * 65536 + low * rest
  local lower_whole = floor(lower / q.units)
  return min(units * whole + upper_whole * 65536 + lower_whole, EXACT), lower - lower_whole * q.units
end

-- Whether one span is longer than another.
local function is_longer(micros, parts, than, than_parts)
  return micros > than or (micros == than and parts > than_parts)
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

-- Buckets. The mark of one that is full only later than it takes to fill, because it owes or has reservations, is
-- the uppermost bit of the moment.
local bucket = {}

function bucket.load(q, value, from)
  local wide = q.wide
  if #value ~= from + 6 + wide then return nil end
  local full, parts, most, most_parts = read('<I7', value, from), 0, q.fill, q.fill_parts
  if full >= EXACT then
    local low, high = read('<I6B', value, from)
    full, most, most_parts = low + (high - 128) * HIGH, q.longest, q.longest_parts
    if full < 0 or full >= EXACT then return nil end
  end
  if wide > 0 then
    parts = number(value, from + 7, wide)
    if parts >= q.units then return nil end
  end
  local expires = full - full % q.grid + 2 * q.grid
  if full < now then return now, 0, nil, expires, false end
  if is_longer(full - now, parts, most, most_parts) then
    -- It was written before the clock was set back, and takes the longest possible time from now.
    return now + most, most_parts, nil, expires, true
  end
  return full, parts, nil, expires, false
end

function bucket.store(q, full, parts)
  local text = write('<I7', full)
  if is_longer(full - now, parts, q.fill, q.fill_parts) then text = sub(text, 1, 6) .. char(byte(text, 7) + 128) end
  if q.wide > 0 then text = text .. write('<I' .. q.wide, parts) end
  if full == now and parts == 0 then return q.head .. text, 0 end
  -- A key is kept until the second multiple of `grid` after the bucket is full. To extend the expiry of a key takes
  -- Redis longer than to change its value, and so it is done for one charge in eight.
  return q.head .. text, full - full % q.grid + 2 * q.grid
end

function bucket.used(q, full, parts)
  return ((full - now) * q.units + parts) / q.micros
end

function bucket.seed(q, units)
  if units >= q.max then return now + q.fill, q.fill_parts end
  local all = max(ceil(units * q.micros - 1e-3), 0)
  local micros, parts = ceil(all / q.units), 0
  if all < EXACT then
    parts = all % q.units
    micros = (all - parts) / q.units
  end
  return bucket.cut(q, now + micros, parts)
end

function bucket.cut(q, full, parts)
  if is_longer(full - now, parts, q.fill, q.fill_parts) then return now + q.fill, q.fill_parts end
  return full, parts
end

-- A bucket from which this many units more are taken.
function bucket.plus(q, full, parts, units)
  local micros, more = span(q, units)
  full, parts = full + micros, parts + more
  if parts >= q.units then full, parts = full + 1, parts - q.units end
  return full, parts
end

function bucket.count(q, full, parts, _, units)
  if is_longer(full - now, parts, q.fill, q.fill_parts) then return full, parts end
  return bucket.cut(q, bucket.plus(q, full, parts, units))
end

-- Fixed windows.
local fixed_window = {}

function fixed_window.load(q, value, from)
  local wide = #value - from - 6
  if wide < 1 or wide > 4 then return nil end
  local start, count = read(q.forms[wide], value, from)
  if start >= EXACT then return nil end
  if count == 0 then return now - now % q.period, 0, nil, 0, false end
  local ends = start + q.period
  -- A window that is yet to come means that the clock was set back. It counts for a full period from now.
  if start > now then return now, count, nil, ends, true end
  if ends > now then return start, count, nil, ends, false end
  return now - now % q.period, 0, nil, ends, false
end

function fixed_window.store(q, start, count)
  return q.head .. write(q.forms[width(count)], start, count), count > 0 and start + q.period or 0
end

function fixed_window.used(_, _, count) return count end

function fixed_window.seed(q, units) return now - now % q.period, max(ceil(units - 1e-6), 0) end

function fixed_window.cut(q, start, count) return start, min(count, q.max) end

function fixed_window.count(q, start, count, _, units)
  return start, max(count, min(count + units, q.max))
end

-- Sliding windows.
local sliding_window = {}

function sliding_window.ends(q, index, before, count)
  if count > 0 then return (index + 2) * q.period end
  return before > 0 and (index + 1) * q.period or 0
end

function sliding_window.load(q, value, from)
  local wide = (#value - from - 5) / 2
  local form = q.forms[wide]
  if not form then return nil end
  local index, before, count = read(form, value, from)
  local here = floor(now / q.period)
  if index >= floor(EXACT / q.period) then return nil end
  local expires = sliding_window.ends(q, index, before, count)
  if index == here then return here, before, count, expires, false end
  -- How far the window before had faded when the clock was set back is unknown, and so all of it counts.
  if index > here then return here, 0, min(before + count, U32), expires, true end
  return here, index + 1 == here and count or 0, 0, expires, false
end

function sliding_window.store(q, index, before, count)
  local text = write(q.forms[width(max(before, count))], index, before, count)
  return q.head .. text, sliding_window.ends(q, index, before, count)
end

function sliding_window.used(q, index, before, count)
  return before * ((index + 1) * q.period - now) / q.period + count
end

function sliding_window.seed(q, units) return floor(now / q.period), 0, max(ceil(units - 1e-6), 0) end

function sliding_window.cut(q, index, before, count) return index, min(before, q.max), min(count, q.max) end

function sliding_window.count(q, index, before, count, units)
  return index, before, max(count, min(count + units, q.max))
end

-- Logs. In bytes: the width of a cost, the cost of all entries, the place of the first entry, the number of
-- entries, and the places: moment and cost, oldest first. Places before and after the entries mean nothing: a long
-- log is changed where it is.
--
-- A log that was read: `text` holds its places from the position `base` on. Of a long log, it is only the front of
-- the value, and the rest is read from the key `name` as needed.
local log = {}
-- A log of more bytes than this is changed where it is, and read in parts: Lua looks at every byte of each string
-- that it copies.
local LONG = 400

-- Moment and cost of an entry.
local function entry(l, place)
  local from, text = l.base + place * l.size, l.text
  if l.name and from + l.size - 1 > #text then
    if from < l.part_from or from + l.size > l.part_from + #l.part then
      local to = from + min(l.first + l.count - place, 40) * l.size
      l.part_from, l.part = from, call('GETRANGE', l.name, from - 1, to - 2)
    end
    from, text = from - l.part_from + 1, l.part
  end
  return read(l.form, text, from)
end

-- A log of these entries, which are bytes.
local function log_of(text, wide)
  local size, newest = 7 + wide, 0
  if text ~= '' then newest = number(text, #text - size + 1, 7) end
  return { text = text, base = 1, size = size, wide = wide, form = '<I7I' .. wide, first = 0, count = #text / size,
    newest = newest }
end

-- The entries of a log, with costs of at least this width.
local function entries(l, wide)
  local from = l.base + l.first * l.size
  local to = from + l.count * l.size - 1
  local text = l.name and call('GETRANGE', l.name, from - 1, to - 1) or sub(l.text, from, to)
  if wide <= l.wide then return text, l.wide end
  local wider, form = {}, '<I7I' .. wide
  for i = 1, l.count do wider[i] = write(form, read(l.form, text, (i - 1) * l.size + 1)) end
  return table.concat(wider), wide
end

-- A log with one more entry of now.
local function log_with(l, cost)
  local last = 0
  if l.count > 0 and l.newest == now then
    local _
    _, last = entry(l, l.first + l.count - 1)
    if last + cost > U32 then last = 0 end
  end
  local text, wide = entries(l, width(last + cost))
  if last > 0 then text = sub(text, 1, #text - 7 - wide) end
  return log_of(text .. write('<I7I' .. wide, now, last + cost), wide)
end

-- A log without its oldest units.
local function log_without(l, units)
  local text, wide = entries(l, l.wide)
  local from = 1
  while units > 0 and from <= #text do
    local moment, cost = read(l.form, text, from)
    from = from + l.size
    if cost > units then
      text, from = write(l.form, moment, cost - units) .. sub(text, from), 1
    end
    units = units - min(cost, units)
  end
  return log_of(sub(text, from), wide)
end

-- `name`: the key, if the value is only its front.
function log.load(q, value, from, name)
  if #value < from + 12 then return nil end
  local wide, total, first, count = read('<BI4I4I4', value, from)
  if wide < 1 or wide > 4 then return nil end
  local l = { head = q.head, text = value, base = from + 13, size = 7 + wide, wide = wide, form = '<I7I' .. wide, first = first,
    count = count, newest = 0, total = 0, name = name, part_from = 0, part = '' }
  if count == 0 then return l, 0, 0, 0, false end
  local last = l.base + (first + count - 1) * l.size
  if name then
    -- With the place after the newest entry, if there is one.
    l.part_from, l.part = last, call('GETRANGE', name, last - 1, last + 2 * l.size - 2)
    if #l.part < l.size then return nil end
    l.has_room = #l.part == 2 * l.size
    l.newest = number(l.part, 1, 7)
  else
    if last + l.size - 1 > #value then return nil end
    l.newest = number(value, last, 7)
  end
  local expires = l.newest + q.period
  if l.newest >= EXACT or total > count * (256 ^ wide - 1) then return nil end
  if expires <= now then
    l.first, l.count = first + count, 0
    return l, 0, 0, expires, false
  end
  local moment, cost = entry(l, l.first)
  while moment + q.period <= now do
    total, l.first, l.count = total - cost, l.first + 1, l.count - 1
    moment, cost = entry(l, l.first)
  end
  l.total = total
  if l.newest <= now then return l, total, 0, expires, false end
  -- The clock was set back. Entries that are yet to come are of now.
  local text, moved = entries(l, wide), {}
  for i = 1, #text, l.size do
    moment, cost = read(l.form, text, i)
    moved[#moved + 1] = write(l.form, min(moment, now), cost)
  end
  return log_of(table.concat(moved), wide), total, 0, expires, true
end

-- The room behind a log: as much as the memory allocator takes anyway. The one that Redis usually has allocates in
-- steps of a quarter of a power of two.
local function room(bytes, size)
  if bytes <= LONG then return '' end
  local _, power = math.frexp(bytes + 9)
  local step = 2 ^ (power - 3)
  return rep('\0', floor((ceil((bytes + 10) / step) * step - bytes - 10) / size) * size)
end

function log.store(q, l, total, added)
  if added > 0 then l = log_with(l, added) end
  local text, wide = entries(l, width(q.max))
  local value = q.head .. write('<BI4I4I4', wide, total, 0, #text / (7 + wide)) .. text
  return value .. room(#value, 7 + wide), total > 0 and l.newest + q.period or 0
end

function log.used(_, _, total) return total end

function log.seed(q, units)
  units = max(ceil(units - 1e-6), 0)
  local l = log_of('', width(q.max))
  if units > 0 then l = log_with(l, units) end
  return l, units, 0
end

function log.cut(q, l, total)
  if total > q.max then return log_without(l, total - q.max), q.max, 0 end
  return l, total, 0
end

function log.count(q, l, total, _, units)
  units = min(units, q.max)
  local beyond = max(total + units - q.max, 0)
  if beyond > 0 then l = log_without(l, beyond) end
  return log_with(l, units), total - beyond + units, 0
end

-- Whether this is the rate of a quota: in lowest terms, and not faster than all of them.
local function is_rate(units, micros)
  if units == 1 then return true end
  if units == 0 or units * ceil(1000 / micros) > U32 then return false end
  while micros > 0 do units, micros = micros, units % micros end
  return units == 1
end

local OF = { [0] = bucket, fixed_window, sliding_window, log, bucket }

-- The quota that a value begins with; nil if it does not begin with one.
local function read_quota(value)
  local tag = byte(value, 1)
  if not tag then return nil end
  local algorithm, from = tag % 5, 2
  local form, q = (tag - algorithm) / 5, { algorithm = algorithm, of = OF[algorithm], units = 1 }
  local is_bucket = algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET
  if is_bucket then
    local wide, units_wide, scale = form % 7 + 1, floor(form / 7), 1
    if form >= 35 then wide, units_wide, scale = form - 34, 0, 1000 end
    from = 2 + wide + units_wide
    if form > 40 or #value < from then return nil end
    q.micros, q.wide = number(value, 2, wide) * scale, units_wide
    if units_wide > 0 then q.units = number(value, 2 + wide, units_wide) end
  elseif form == 4 then
    if #value < 9 then return nil end
    q.micros, from = number(value, 2, 7), 9
  else
    q.micros = PERIODS[form]
  end
  -- What it holds: seven bits in each byte, the low ones first.
  local holds, scale, part = 0, 1, nil
  repeat
    part = byte(value, from)
    if not part or scale > 268435456 then return nil end
    holds, scale, from = holds + part % 128 * scale, scale * 128, from + 1
  until part < 128
  if not q.micros or q.micros == 0 or q.micros > MAX_PERIOD or holds == 0 or holds > U32 then return nil end
  q.max, q.head = holds, sub(value, 1, from - 1)
  if is_bucket then
    if not is_rate(q.units, q.micros) then return nil end
    q.fill, q.fill_parts = span(q, holds)
    if q.fill > LONGEST then return nil end
    -- It owes at most as much as it holds.
    q.debt, q.debt_parts = bucket.plus(q, q.fill, q.fill_parts, holds)
    if q.debt >= LONGEST then q.debt, q.debt_parts = LONGEST, q.fill == LONGEST and q.fill_parts or 0 end
    q.longest, q.longest_parts = q.fill + MAX_WAIT, q.fill_parts
    if is_longer(q.debt, q.debt_parts, q.longest, q.longest_parts) then
      q.longest, q.longest_parts = q.debt, q.debt_parts
    end
    q.grid = min(max(8 * q.micros / q.units, 1e6), 3.6e9)
  else
    if q.micros < 1000 then return nil end
    q.period = q.micros
    q.forms = algorithm == FIXED_WINDOW and { '<I7I1', '<I7I2', '<I7I3', '<I7I4' }
      or { '<I6I1I1', '<I6I2I2', '<I6I3I3', '<I6I4I4' }
  end
  return q
end

-- Counters: the state of the quota that was asked last, and of the one before, if there is one.

-- One of the states of a counter, from its bytes: `kept` are the bytes to keep if nothing is charged. Nil if it is
-- not a state.
local function read_state(value)
  local q = read_quota(value)
  if not q then return nil end
  local a, b, c, expires, set_back = q.of.load(q, value, #q.head + 1)
  if not a then return nil end
  local s = { q = q, a = a, b = b, c = c, kept = value, expires = expires, set_back = set_back }
  if set_back then s.kept, s.expires = q.of.store(q, a, b, c) end
  return s
end

-- The states of a counter: the current and the previous one. Nil if it is not a counter.
local function read_states(value)
  if byte(value, 1) ~= TWO then return read_state(value) end
  if #value < 5 then return nil end
  local length = number(value, 2, 4)
  local current, previous = read_state(sub(value, 6, 5 + length)), read_state(sub(value, 6 + length))
  if not current or not previous or current.q.head == previous.q.head then return nil end
  return current, previous
end

local function is_fresh(s)
  return s.q.of.used(s.q, s.a, s.b, s.c) == 0
end

-- The state of a counter under a quota, and the previous one. Nil if the counter is new.
local function switch(q, current, previous)
  -- The key may have expired already, and that must make no difference.
  if previous and is_fresh(current) and is_fresh(previous) then previous = nil end
  if current and current.q.head == q.head then return current, previous end
  if previous and previous.q.head == q.head then return previous, current end
  while current and is_fresh(current) do current, previous = previous, nil end
  if not current then return nil end
  local of, p, s = q.of, current.q, { q = q, switched = true }
  if p.algorithm == q.algorithm and p.units == q.units and p.micros == q.micros then
    s.a, s.b, s.c = of.cut(q, current.a, current.b, current.c)
  else
    local units = p.of.used(p, current.a, current.b, current.c)
    s.a, s.b, s.c = of.seed(q, min(units, q.max))
  end
  s.kept, s.expires = of.store(q, s.a, s.b, s.c)
  return s, current
end

-- The bytes of two states, and when they expire.
local function join(value, expires, previous, previous_expires)
  return char(TWO) .. write('<I4', #value) .. value .. previous, max(expires, previous_expires)
end

-- The bytes of a counter whose states have changed, and when it expires.
local function close(q, a, b, c, p, pa, pb, pc)
  local value, expires = q.of.store(q, a, b, c)
  if not p then return value, expires end
  return join(value, expires, p.of.store(p, pa, pb, pc))
end
