-- What both scripts share: the time, and what a quota can do with a state.
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
-- A quota has functions of a state, the same for every algorithm:
--   load(value, name): the state in these bytes, when the key expires, and whether the clock was set back; nil if they
--   are not a state of this quota. `name`: the key, if they are only the front of a long log.
--   store(state): its bytes, and when the key is to expire.
--   after(t, state, n): the state after `n` charges of a term (see `charge.lua`); nil if they do not fit.
--   used(state): the units used.
--   seed(units): a state of which this much is used, rounded up, except for what may be an error of floating point.
--   cut(state): limited to what the quota holds. count(state, units): with units admitted under another quota.

local read, write, call = struct.unpack, struct.pack, redis.call
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
-- The first number that may not be exact.
local EXACT = 9007199254740992
-- A log of more bytes than this is changed where it is, and read in parts: Lua looks at every byte of each string that
-- it copies.
local LONG = 400

local question, keys = ARGV[1], KEYS
local deadline, now, at = read('<dd', question)
local time = call('TIME')
-- What to add to a moment to get the server's time. It is unknown how fast a clock runs that is not the server's: then
-- keys are kept for an hour longer.
local to_server = 0
time = time[1] * 1000000 + time[2]
if now == 0 then now = time else to_server = time - now + 3.6e9 end

-- The expiry of a key, in milliseconds of the server's time. It is absolute, because the script may have begun some
-- time before it read the time. What counts nothing has expired already.
local function expiry(expires)
  return expires > now and ceil((expires + to_server) / 1000) .. '' or '1'
end

-- Everything about quotas, in a function of its own: to make its functions takes time for each call of the script, and
-- the common case needs none of them. (For the same reason, it uses few variables from outside.) Returns `read_quota`,
-- `read_states`, `switch` and `join`.
local function prelude()

local read, write, call = struct.unpack, struct.pack, redis.call
local floor, ceil, min, max, frexp = math.floor, math.ceil, math.min, math.max, math.frexp
local byte, char, sub, rep, concat = string.byte, string.char, string.sub, string.rep, table.concat

local TOKEN_BUCKET, LEAKY_BUCKET = 0, 4
-- 2^32 - 1; 2^48; and the longest that any budget takes to be full.
local U32, HIGH, LONGEST = 4294967295, 281474976710656, 4503599627370496
-- The longest that a charge may wait, and the longest period, in microseconds.
local MAX_WAIT, MAX_PERIOD = 60000000, 316224000000000
-- The first byte of two counters.
local TWO = 255

-- How many bytes a number takes.
local function width(n)
  if n < 256 then return 1 elseif n < 65536 then return 2 elseif n < 16777216 then return 3 end
  return 4
end

local function number(value, from, wide)
  return (read('<I' .. wide, value, from))
end

-- Whether one span of time is longer than another.
local function is_longer(micros, parts, than, than_parts)
  return micros > than or (micros == than and parts > than_parts)
end

-- Buckets. The mark of one that is full only later than it takes to fill, because it owes or has reservations, is the
-- uppermost bit of the moment.
local function bucket(q)
  local head, holds, units, micros, wide = q.head, q.max, q.units, q.micros, q.wide
  -- The rate has to be in lowest terms, and not faster than any quota.
  local a, b = units, micros
  while b > 0 do a, b = b, a % b end
  if a ~= 1 or units == 0 or units * ceil(1000 / micros) > U32 then return nil end

  -- How long this many units take to come back, exactly, unless it is longer than any budget takes.
  local function span(cost)
    local whole = floor(micros / units)
    local rest = micros - whole * units
    local upper = floor(cost / 65536) * rest
    local upper_whole = floor(upper / units)
    local lower = (upper - upper_whole * units) * 65536 + cost % 65536 * rest
    local lower_whole = floor(lower / units)
    return min(cost * whole + upper_whole * 65536 + lower_whole, EXACT), lower - lower_whole * units
  end

  local fill, fill_parts = span(holds)
  if fill > LONGEST then return nil end
  local grid = min(max(8 * micros / units, 1e6), 3.6e9)
  local form, size = '<c' .. #head .. 'I7' .. (wide > 0 and 'I' .. wide or ''), #head + 7 + wide

  -- With this many units more taken.
  local function plus(full, parts, cost)
    local more, more_parts = span(cost)
    full, parts = full + more, parts + more_parts
    if parts >= units then return full + 1, parts - units end
    return full, parts
  end

  -- How long it takes to be full at most if it owes: it owes at most as much as it holds.
  local function debt()
    local most, most_parts = plus(fill, fill_parts, holds)
    if most < LONGEST then return most, most_parts end
    return LONGEST, fill == LONGEST and fill_parts or 0
  end

  function q.load(value)
    if #value ~= size then return nil end
    local own, full, parts = read(form, value)
    if own ~= head then return nil end
    local most, most_parts = fill, fill_parts
    if full >= EXACT then
      local low, high = read('<I6B', value, #head + 1)
      full = low + (high - 128) * HIGH
      if full < 0 or full >= EXACT then return nil end
      most, most_parts = debt()
      if is_longer(fill + MAX_WAIT, fill_parts, most, most_parts) then
        most, most_parts = fill + MAX_WAIT, fill_parts
      end
    end
    if wide == 0 then parts = 0 elseif parts >= units then return nil end
    local expires = full - full % grid + 2 * grid
    if full < now then return now, 0, nil, expires, false end
    if full - now >= most and is_longer(full - now, parts, most, most_parts) then
      -- It was written before the clock was set back, and takes the longest possible time from now.
      return now + most, most_parts, nil, expires, true
    end
    return full, parts, nil, expires, false
  end

  function q.store(full, parts)
    local value = write(form, head, full, parts)
    if full - now >= fill and is_longer(full - now, parts, fill, fill_parts) then
      local last = #head + 7
      value = sub(value, 1, last - 1) .. char(byte(value, last) + 128) .. sub(value, last + 1)
    end
    if full == now and parts == 0 then return value, 0 end
    -- A key is kept until the second multiple of `grid` after the bucket is full. To extend the expiry of a key takes
    -- Redis longer than to change its value, and so it is done for one charge in eight.
    return value, full - full % grid + 2 * grid
  end

  function q.after(t, full, parts, _, n)
    if t.wait then
      -- The last of them leaves the queue after all others.
      local ready, ready_parts = full + (n - 1) * t.micros, parts + (n - 1) * t.parts
      local whole = floor(ready_parts / units)
      if is_longer(ready + whole - now, ready_parts - whole * units, t.wait, 0) then return nil end
    end
    full, parts = full + n * t.micros, parts + n * t.parts
    if parts >= units then
      local whole = floor(parts / units)
      full, parts = full + whole, parts - whole * units
    end
    if full - now < t.limit or not is_longer(full - now, parts, t.limit, fill_parts) then return full, parts end
  end

  function q.cut(full, parts)
    if is_longer(full - now, parts, fill, fill_parts) then return now + fill, fill_parts end
    return full, parts
  end

  function q.used(full, parts) return ((full - now) * units + parts) / micros end

  function q.seed(used)
    if used >= holds then return now + fill, fill_parts end
    local all = max(ceil(used * micros - 1e-3), 0)
    if all >= EXACT then return q.cut(now + ceil(all / units), 0) end
    return q.cut(now + floor(all / units), all % units)
  end

  function q.count(full, parts, _, cost)
    if is_longer(full - now, parts, fill, fill_parts) then return full, parts end
    return q.cut(plus(full, parts, cost))
  end

  q.fill, q.span, q.plus, q.debt, q.is_longer = fill, span, plus, debt, is_longer
  return q
end

local function fixed_window(q)
  local head, holds, period = q.head, q.max, q.micros
  local form = '<c' .. #head .. 'I7I'
  local forms = { form .. 1, form .. 2, form .. 3, form .. 4 }

  function q.load(value)
    form = forms[#value - #head - 7]
    if not form then return nil end
    local own, start, count = read(form, value)
    if own ~= head or start >= EXACT then return nil end
    if count == 0 then return now - now % period, 0, nil, 0, false end
    local ends = start + period
    -- A window that is yet to come means that the clock was set back. It counts for a full period from now.
    if start > now then return now, count, nil, ends, true end
    if ends > now then return start, count, nil, ends, false end
    return now - now % period, 0, nil, ends, false
  end

  function q.store(start, count)
    return write(forms[width(count)], head, start, count), count > 0 and start + period or 0
  end

  function q.after(t, start, count, _, n)
    count = count + n * t.cost
    if count <= holds then return start, count end
  end

  function q.used(_, count) return count end

  function q.seed(used) return now - now % period, max(ceil(used - 1e-6), 0) end

  function q.cut(start, count) return start, min(count, holds) end

  function q.count(start, count, _, cost) return start, max(count, min(count + cost, holds)) end

  return q
end

local function sliding_window(q)
  local head, holds, period = q.head, q.max, q.micros
  local form = '<c' .. #head .. 'I6'
  local forms = { form .. 'I1I1', form .. 'I2I2', form .. 'I3I3', form .. 'I4I4' }
  local here = floor(now / period)
  local left = (here + 1) * period - now

  -- a × b in parts of twenty bits, the upper ones first. `a` is below 2^32 and `b` below 2^53.
  local function product(a, b)
    local low, mid, high = b % 1048576, floor(b / 1048576) % 1048576, floor(b / 1099511627776)
    low = a * low
    mid = a * mid + floor(low / 1048576)
    return a * high + floor(mid / 1048576), mid % 1048576, low % 1048576
  end

  -- Whether a × b ≤ c × d.
  local function at_most(a, b, c, d)
    local one, other = a * b, c * d
    if one < EXACT and other < EXACT then return one <= other end
    local a1, a2, a3 = product(a, b)
    local b1, b2, b3 = product(c, d)
    if a1 ~= b1 then return a1 < b1 end
    if a2 ~= b2 then return a2 < b2 end
    return a3 <= b3
  end

  local function ends(index, before, count)
    if count > 0 then return (index + 2) * period end
    return before > 0 and (index + 1) * period or 0
  end

  function q.load(value)
    form = forms[(#value - #head - 6) / 2]
    if not form then return nil end
    local own, index, before, count = read(form, value)
    if own ~= head or index >= floor(EXACT / period) then return nil end
    local expires = ends(index, before, count)
    if index == here then return here, before, count, expires, false end
    -- How far the window before had faded when the clock was set back is unknown, and so all of it counts.
    if index > here then return here, 0, min(before + count, U32), expires, true end
    return here, index + 1 == here and count or 0, 0, expires, false
  end

  function q.store(index, before, count)
    return write(forms[width(max(before, count))], head, index, before, count), ends(index, before, count)
  end

  function q.after(t, index, before, count, n)
    count = count + n * t.cost
    local room = holds - count
    if room >= 0 and (before == 0 or at_most(before, left, room, period)) then return index, before, count end
  end

  function q.used(_, before, count) return before * left / period + count end

  function q.seed(used) return here, 0, max(ceil(used - 1e-6), 0) end

  function q.cut(index, before, count) return index, min(before, holds), min(count, holds) end

  function q.count(index, before, count, cost) return index, before, max(count, min(count + cost, holds)) end

  return q
end

-- Logs. In bytes: the width of a cost, the cost of all entries, the place of the first entry, the number of entries,
-- and the places: moment and cost, oldest first. Places before and after the entries mean nothing.
--
-- A log that was read: `text` holds its places from the position `base` on. Of a long log, it is only the front of the
-- value, and the rest is read from the key `name` as needed.
local function sliding_log(q)
  local head, holds, period = q.head, q.max, q.micros

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
  local function from_text(text, wide)
    local size = 7 + wide
    local newest = text ~= '' and number(text, #text - size + 1, 7) or 0
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
    return concat(wider), wide
  end

  -- With one more entry of now.
  local function with(l, cost)
    local _, last = nil, 0
    if l.count > 0 and l.newest == now then
      _, last = entry(l, l.first + l.count - 1)
      if last + cost > U32 then last = 0 end
    end
    local text, wide = entries(l, width(last + cost))
    if last > 0 then text = sub(text, 1, #text - 7 - wide) end
    return from_text(text .. write('<I7I' .. wide, now, last + cost), wide)
  end

  -- Without its oldest units.
  local function without(l, units)
    local text, wide = entries(l, l.wide)
    local from = 1
    while units > 0 and from <= #text do
      local moment, cost = read(l.form, text, from)
      from = from + l.size
      if cost > units then text, from = write(l.form, moment, cost - units) .. sub(text, from), 1 end
      units = units - min(cost, units)
    end
    return from_text(sub(text, from), wide)
  end

  function q.load(value, name)
    local from = #head + 1
    if #value < from + 12 or sub(value, 1, #head) ~= head then return nil end
    local wide, total, first, count = read('<BI4I4I4', value, from)
    if wide < 1 or wide > 4 then return nil end
    local l = { q = q, text = value, base = from + 13, size = 7 + wide, wide = wide, form = '<I7I' .. wide, first = first,
      count = count, newest = 0, total = 0, name = name, part_from = 0, part = '', has_room = false }
    if count == 0 then return l, 0, 0, 0, false end
    local last = l.base + (first + count - 1) * l.size
    if name then
      -- With the place after the newest entry, if there is one.
      l.part_from, l.part = last, call('GETRANGE', name, last - 1, last + 2 * l.size - 2)
      if #l.part < l.size then return nil end
      l.newest, l.has_room = number(l.part, 1, 7), #l.part == 2 * l.size
    else
      if last + l.size - 1 > #value then return nil end
      l.newest = number(value, last, 7)
    end
    local expires = l.newest + period
    if l.newest >= EXACT or total > count * (256 ^ wide - 1) then return nil end
    if expires <= now then
      l.first, l.count = first + count, 0
      return l, 0, 0, expires, false
    end
    local moment, cost = entry(l, l.first)
    while moment + period <= now do
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
    return from_text(concat(moved), wide), total, 0, expires, true
  end

  -- The room behind a log: as much as the memory allocator takes anyway. The one that Redis usually has allocates in
  -- steps of a quarter of a power of two.
  local function room(bytes, size)
    if bytes <= LONG then return '' end
    local _, power = frexp(bytes + 9)
    local step = 2 ^ (power - 3)
    return rep('\0', floor((ceil((bytes + 10) / step) * step - bytes - 10) / size) * size)
  end

  function q.store(l, total, added)
    if added > 0 then l = with(l, added) end
    local text, wide = entries(l, width(holds))
    local value = head .. write('<BI4I4I4', wide, total, 0, #text / (7 + wide)) .. text
    return value .. room(#value, 7 + wide), total > 0 and l.newest + period or 0
  end

  function q.after(t, l, total, added, n)
    local units = n * t.cost
    if total + units <= holds then return l, total + units, added + units end
  end

  function q.used(_, total) return total end

  function q.seed(used)
    local units, l = max(ceil(used - 1e-6), 0), from_text('', width(holds))
    if units > 0 then l = with(l, units) end
    return l, units, 0
  end

  function q.cut(l, total)
    if total > holds then return without(l, total - holds), holds, 0 end
    return l, total, 0
  end

  function q.count(l, total, _, cost)
    cost = min(cost, holds)
    local beyond = max(total + cost - holds, 0)
    if beyond > 0 then l = without(l, beyond) end
    return with(l, cost), total - beyond + cost, 0
  end

  q.entry, q.entries, q.from_text, q.with, q.width = entry, entries, from_text, with, width
  return q
end

local MAKE = { [0] = bucket, fixed_window, sliding_window, sliding_log, bucket }
local PERIODS = { [0] = 1e6, 6e7, 3.6e9, 8.64e10 }

-- The quota that a value begins with; nil if it does not begin with one.
local function read_quota(value)
  local tag = byte(value, 1)
  if not tag then return nil end
  local algorithm, from, micros, units, units_wide = tag % 5, 2, nil, 1, 0
  local form, is_bucket = (tag - algorithm) / 5, algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET
  if is_bucket then
    local wide, scale = form % 7 + 1, 1
    if form >= 35 then wide, scale = form - 34, 1000 else units_wide = floor(form / 7) end
    from = 2 + wide + units_wide
    if form > 40 or #value < from then return nil end
    micros = number(value, 2, wide) * scale
    if units_wide > 0 then units = number(value, 2 + wide, units_wide) end
  elseif form == 4 then
    if #value < 9 then return nil end
    micros, from = number(value, 2, 7), 9
  else
    micros = PERIODS[form]
  end
  -- What it holds: seven bits in each byte, the low ones first.
  local holds, scale, part = 0, 1, nil
  repeat
    part = byte(value, from)
    if not part or scale > 268435456 then return nil end
    holds, scale, from = holds + part % 128 * scale, scale * 128, from + 1
  until part < 128
  if not micros or micros < (is_bucket and 1 or 1000) or micros > MAX_PERIOD then return nil end
  if holds == 0 or holds > U32 then return nil end
  return MAKE[algorithm]({ algorithm = algorithm, head = sub(value, 1, from - 1), max = holds, units = units,
    micros = micros, wide = units_wide, load = 0, store = 0, after = 0, used = 0, seed = 0, cut = 0, count = 0 })
end

-- One of the states of a counter, from its bytes: `kept` are the bytes to keep if nothing is charged. Nil if it is not
-- a state.
local function read_state(value)
  local q = read_quota(value)
  if not q then return nil end
  local a, b, c, expires, set_back = q.load(value)
  if not a then return nil end
  local s = { q = q, a = a, b = b, c = c, kept = value, expires = expires }
  if set_back then s.kept, s.expires = q.store(a, b, c) end
  return s
end

-- The states of a counter: of the quota that was asked last, and of the one before, if there is one. Nil if it is not a
-- counter.
local function read_states(value)
  if byte(value, 1) ~= TWO then return read_state(value) end
  if #value < 5 then return nil end
  local length = number(value, 2, 4)
  local current, previous = read_state(sub(value, 6, 5 + length)), read_state(sub(value, 6 + length))
  if not current or not previous or current.q.head == previous.q.head then return nil end
  return current, previous
end

local function is_fresh(s) return s.q.used(s.a, s.b, s.c) == 0 end

-- The state of a counter under a quota, and the previous one. Nil if the counter is new.
local function switch(q, current, previous)
  -- The key may have expired already, and that must make no difference.
  if previous and is_fresh(current) and is_fresh(previous) then previous = nil end
  if current and current.q.head == q.head then return current, previous end
  if previous and previous.q.head == q.head then return previous, current end
  while current and is_fresh(current) do current, previous = previous, nil end
  if not current then return nil end
  local p, s = current.q, { q = q }
  if p.algorithm == q.algorithm and p.units == q.units and p.micros == q.micros then
    s.a, s.b, s.c = q.cut(current.a, current.b, current.c)
  else
    s.a, s.b, s.c = q.seed(min(p.used(current.a, current.b, current.c), q.max))
  end
  s.kept, s.expires = q.store(s.a, s.b, s.c)
  return s, current
end

-- The bytes of two states, and when they expire.
local function join(value, expires, previous, previous_expires)
  return char(TWO) .. write('<I4', #value) .. value .. previous, max(expires, previous_expires)
end

return read_quota, read_states, switch, join
end
