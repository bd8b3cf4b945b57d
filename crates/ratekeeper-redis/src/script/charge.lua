-- Decides requests: each is charged to all of its counters or to none.
--
-- KEYS: the counters.
-- ARGV[1], packed by `batch/encode.rs`: deadline, time (see the prelude); the number of the question; whether some
-- of the logs may be long; the numbers of terms, runs and groups; and those.
--   A term: a cost, how long it may wait in microseconds (-1: it may not), and the head of the quota. An invalid
--   quota has no head, and admits only what costs nothing.
--   A run: a term, the first and the last counter, and whether the numbers of charges follow, one for each counter.
--   Each counter is charged by requests that charge nothing else, and by no others.
--   A group: how many equal requests there are, their number of charges, and for each its counter and its term.
--   Without runs and groups, nothing is charged.
-- Returns, packed: the number of the question; the time; 1 if that is past the deadline, and nothing was done, or 0;
-- how many counters of runs and groups were not admitted as often as asked, and for each its number (counters of
-- runs first) and how often it was; and what each counter was before: its size if all have the same, or 0 and the
-- sizes, and the bytes. Of a log, only what the answers depend on is returned.
-- The error RKREFUSED says that nothing was written.


local id, has_long, term_count, run_count, group_count
id, has_long, term_count, run_count, group_count, at = read('<I4BHHH', question, at)
if deadline > 0 and now > deadline then return write('<I4dB', id, now, 1) end

-- What the counters are before; what they are after, and when that expires; when they expire so far; the logs that
-- were read; and how many of their oldest units the answers depend on.
local values, news, expiries, expired, logs, needs = {}, {}, {}, {}, {}, {}

-- For each algorithm, the state after `n` charges of a term. Nil if they do not fit.
local after = {}

after[TOKEN_BUCKET] = function(q, t, full, parts, _, n)
  full, parts = full + n * t.micros, parts + n * t.parts
  if parts >= q.units then
    local whole = floor(parts / q.units)
    full, parts = full + whole, parts - whole * q.units
  end
  if full - now < t.limit or not is_longer(full - now, parts, t.limit, q.fill_parts) then return full, parts end
end

after[LEAKY_BUCKET] = function(q, t, full, parts, _, n)
  if t.wait then
    -- The last of them leaves after all others.
    local ready, ready_parts = full + (n - 1) * t.micros, parts + (n - 1) * t.parts
    local whole = floor(ready_parts / q.units)
    if is_longer(ready + whole - now, ready_parts - whole * q.units, t.wait, 0) then return nil end
  end
  return after[TOKEN_BUCKET](q, t, full, parts, nil, n)
end

after[FIXED_WINDOW] = function(q, t, start, count, _, n)
  count = count + n * t.cost
  if count <= q.max then return start, count end
end

after[SLIDING_WINDOW] = function(q, t, index, before, count, n)
  count = count + n * t.cost
  local room = q.max - count
  if room < 0 then return nil end
  if before == 0 or at_most(before, (index + 1) * q.period - now, room, q.period) then return index, before, count end
end

after[SLIDING_LOG] = function(q, t, l, total, added, n)
  local units = n * t.cost
  if total + units <= q.max then return l, total + units, added + units end
end

-- Reads a term: a quota with a cost.
local function read_term()
  local t, wait, head = {}, nil, nil
  t.cost, wait, head, at = read('<I4dBc0', question, at)
  local q = read_quota(head)
  if not q then return t end
  t.q, t.of, t.head, t.head_size, t.after = q, q.of, head, #head, after[q.algorithm]
  if q.fill then
    t.micros, t.parts = span(q, t.cost)
    t.limit = q.fill
    if wait >= 0 then
      if q.algorithm == TOKEN_BUCKET then t.limit = q.fill + wait else t.wait = wait end
    end
  end
  return t
end

-- All bytes of a counter, of which only the front may have been read.
local function whole(k, value)
  logs[k] = nil
  if value.q then return (log.store(value.q, value.a, value.b, value.c)) end
  if has_long > 0 and #value == LONG and value == values[k] then
    value = call('GET', keys[k])
    values[k] = value
  end
  return value
end

-- Reads a counter that has two states, or was asked under another quota. Returns its state under this one; the bytes
-- to keep if nothing is charged, unless they are what there is, and when they expire; and the previous state.
local function open(k, q, value)
  value = whole(k, value)
  local current, previous = read_states(value)
  -- What is not a counter is not ours. It may be of any size, and may be there for ever.
  if not current and value == values[k] then values[k] = false end
  local s, other = switch(q, current, previous)
  if not s then
    local a, b, c = q.of.seed(q, 0)
    return a, b, c, q.of.store(q, a, b, c)
  end
  local kept, expires = s.kept, s.expires
  if other then kept, expires = join(kept, expires, other.kept, other.expires) end
  if kept == value then kept = nil end
  return s.a, s.b, s.c, kept, expires, other
end

-- Charges a term to a counter, up to `times` times. Returns how often it fits; and if the counter changes, its new
-- bytes (of a log, the state) and when they expire.
local function charge(k, value, t, times)
  local q, of = t.q, t.of
  if not q then return t.cost == 0 and times or 0 end
  local a, b, c, kept, expires, other
  if not value then
    a, b, c = of.seed(q, 0)
  elseif value.q == q then
    a, b, c = value.a, value.b, value.c
  else
    local set_back = false
    if not value.q and sub(value, 1, t.head_size) == t.head then
      a, b, c, expires, set_back = of.load(q, value, t.head_size + 1, has_long > 0 and #value == LONG and keys[k])
    end
    if not a then
      a, b, c, kept, expires, other = open(k, q, value)
    else
      if value == values[k] then expired[k] = expires end
      if set_back then
        whole(k, value)
        kept, expires = of.store(q, a, b, c)
      elseif of == log and value == values[k] then
        -- One that owes frees nothing before it has paid.
        logs[k], needs[k] = a, max(needs[k] or 1, b + 1 - q.max)
      end
    end
  end
  local cost = t.cost
  if cost == 0 then return times, kept, expires end
  if times == 0 or cost > q.max then return 0, kept, expires end
  local n, x, y, z = times, t.after(q, t, a, b, c, times)
  if not x then
    -- As many as fit.
    local most = times - 1
    n = 0
    while n < most do
      local mid = ceil((n + most) / 2)
      if t.after(q, t, a, b, c, mid) then n = mid else most = mid - 1 end
    end
    if of == log then
      -- The wait depends on the oldest entries. Those for a cost of up to the next power of two are returned, so
      -- that few questions are needed where costs rise.
      local _, power = math.frexp(cost - 1)
      needs[k] = max(needs[k] or 0, b + n * cost + min(2 ^ power, q.max) - q.max)
    end
    if n == 0 then return 0, kept, expires end
    x, y, z = t.after(q, t, a, b, c, n)
  end
  if other then
    local p = other.q
    return n, close(q, x, y, z, p, p.of.count(p, other.a, other.b, other.c, n * cost))
  end
  if of == log then return n, { q = q, a = x, b = y, c = z }, now + q.period end
  return n, of.store(q, x, y, z)
end

-- Charges all counters of a group this many times, one after the other, if all of it fits. For zero times, the
-- counters only switch to the quotas that they were asked under.
local function charge_all(ks, ts, times)
  local fits, charged, ends = true, {}, {}
  for j = 1, #ks do
    local k = ks[j]
    local passed, new, expires = charge(k, charged[k] or news[k] or values[k], ts[j], times)
    fits = fits and passed == times
    if new then charged[k], ends[k] = new, expires end
  end
  if fits then
    for k, new in pairs(charged) do news[k], expiries[k] = new, ends[k] end
  end
  return fits
end

-- What the answers depend on of a log: the oldest entries, as many as are needed, and the cost of all others at the
-- moment of the newest.
local function summary(l, need)
  local left, list = l.total, {}
  for place = l.first, l.first + l.count - 1 do
    if need <= 0 then break end
    local moment, cost = entry(l, place)
    list[#list + 1], left, need = write('<I7I4', moment, cost), left - cost, need - cost
  end
  if left > 0 then list[#list + 1] = write('<I7I4', l.newest, left) end
  return l.head .. write('<BI4I4I4', 4, l.total, 0, #list) .. table.concat(list)
end

-- What to write into a log that is long, and where; nil if there is no room.
local function edits(key, l, total, added)
  local place, count, last = l.first + l.count, l.count + 1, 0
  if l.count > 0 and l.newest == now then
    place, count, last = place - 1, l.count, select(2, entry(l, place - 1))
  end
  if not l.name or (last == 0 and not l.has_room) then return nil end
  if last + added >= 256 ^ l.wide or 7 * l.first > count then return nil end
  return { key, l.base + place * l.size - 1, write(l.form, now, last + added) },
    { key, l.base - 13, write('<I4I4I4', total, l.first, count) }
end

-- Reads and decides everything, and writes nothing. Returns the counters of runs and the groups that were not
-- admitted as often as asked; the expiries to extend; and what to write into logs.
local function decide()
  if has_long > 0 then
    for k = 1, #keys do
      local value = redis.pcall('GETRANGE', keys[k], 0, LONG - 1)
      -- A key that is not a string is not ours.
      if value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err, 0) end
      values[k] = not value.err and value ~= '' and value
    end
  else
    -- Lua cannot pass more arguments at once.
    for from = 1, #keys, 4096 do
      local part = call('MGET', unpack(keys, from, min(from + 4095, #keys)))
      for i = 1, #part do values[from + i - 1] = part[i] end
    end
  end

  local terms, asked, short = {}, 0, {}
  for i = 1, term_count do terms[i] = read_term() end
  for _ = 1, run_count do
    local i, first, last, with_times
    i, first, last, with_times, at = read('<HHHB', question, at)
    local t, times = terms[i], 1
    for k = first, last do
      if with_times > 0 then times, at = read('<H', question, at) end
      local passed, new, expires = charge(k, values[k], t, times)
      if new then news[k], expiries[k] = new, expires end
      if passed < times then short[#short + 1] = write('<HH', asked + k - first, passed) end
    end
    asked = asked + last - first + 1
  end
  for _ = 1, group_count do
    local times, n
    times, n, at = read('<HH', question, at)
    local ks, ts, is_charged, is_repeated = {}, {}, {}, false
    for j = 1, n do
      local k, i
      k, i, at = read('<HH', question, at)
      ks[j], ts[j] = k, terms[i]
      is_repeated, is_charged[k] = is_repeated or is_charged[k], true
    end
    local passed, step = 0, is_repeated and 1 or times
    while passed < times and step >= 1 do
      local some = min(step, times - passed)
      if charge_all(ks, ts, some) then passed = passed + some else step = floor(step / 2) end
    end
    if passed < times then
      charge_all(ks, ts, 0)
      short[#short + 1] = write('<HH', asked, passed)
    end
    asked = asked + 1
  end

  local extended, written = {}, {}
  for k, l in pairs(logs) do values[k] = summary(l, needs[k]) end
  for k, new in pairs(news) do
    if new.q then
      local one, other = edits(keys[k], new.a, new.b, new.c)
      if one then
        extended[#extended + 1], news[k] = k, nil
        written[#written + 1], written[#written + 2] = one, other
      else
        news[k] = log.store(new.q, new.a, new.b, new.c)
      end
    end
  end
  return asked, short, extended, written
end

local is_done, asked, short, extended, written = pcall(decide)
if not is_done then return redis.error_reply('RKREFUSED ' .. (asked.err or asked)) end

-- If Redis refuses one of the commands, it does so before a counter has changed: neither a later expiry nor writing
-- nothing changes any.
for i = 1, #extended do
  local k = extended[i]
  call('PEXPIREAT', keys[k], expiry(expiries[k]))
  call('SETRANGE', keys[k], 0, '')
end
local last, last_expiry = nil, nil
for k, new in pairs(news) do
  local expires = expiries[k]
  if expires == expired[k] then
    call('SET', keys[k], new, 'KEEPTTL')
  else
    if expires ~= last then last, last_expiry = expires, expiry(expires) end
    call('SET', keys[k], new, 'PXAT', last_expiry)
  end
end
for i = 1, #written do call('SETRANGE', unpack(written[i])) end

local sizes, size = {}, #(values[1] or '')
local are_same = size > 0 and size < 255
for k = 1, #keys do
  local value = values[k] or ''
  if asked == 0 and value ~= '' and not read_states(value) then value = '' end
  local own = #value
  are_same = are_same and own == size
  values[k], sizes[k] = value, own < 255 and char(own) or char(255) .. write('<I4', own)
end
local answer = write('<I4dBH', id, now, 0, #short) .. table.concat(short)
if are_same then return answer .. char(size) .. table.concat(values) end
return answer .. '\0' .. table.concat(sizes) .. table.concat(values)
