-- Decides requests: each is charged to all of its counters or to none.
--
-- KEYS: the counters.
-- ARGV[1], packed by `batch/encode.rs`: deadline, time (see the prelude); the number of the question; whether some
-- of the logs may be long; the numbers of terms, runs and groups; and those.
--   A term: a cost, how long it may wait in microseconds (-1: it may not), and the head of the quota. An invalid
--   quota has no head, and admits only what costs nothing. For a bucket whose units take whole microseconds, before
--   the head: how long the cost takes to come back (0: all others), how long the bucket takes to fill, and one unit;
--   and how such a bucket is unpacked.
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

-- What the counters are before; and what they are after, and when that expires, unless it is when they do already.
local values, news, expiries = {}, {}, {}
-- The functions for all but the common case, once they are needed.
local general

-- The functions for all but the common case: to charge, to finish logs, and to read a counter.
local function make_general()
  local TOKEN_BUCKET, SLIDING_LOG = 0, 3
  local read_quota, read_states, switch, join = prelude()
  local max, min, ceil, concat = math.max, math.min, math.ceil, table.concat
  -- The logs that were read, how many of their oldest units the answers depend on, and whether any was charged: what
  -- it is after is a state, and not yet bytes.
  local logs, needs, has_states = {}, {}, false

  -- The quota of a term; false if it is invalid.
  local function quota_of(t)
    local q = read_quota(t.head)
    t.q = q or false
    if not q then return false end
    t.is_log = q.algorithm == SLIDING_LOG
    if q.fill then
      t.micros, t.parts = q.span(t.cost)
      t.limit = q.fill
      if t.patience >= 0 then
        if q.algorithm == TOKEN_BUCKET then t.limit = q.fill + t.patience else t.wait = t.patience end
      end
    end
    return q
  end

  -- All bytes of a counter, of which only the front may have been read.
  local function whole(k, value)
    logs[k] = nil
    if has_states and value.q then return (value.q.store(value.a, value.b, value.c)) end
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
      local a, b, c = q.seed(0)
      return a, b, c, q.store(a, b, c)
    end
    local kept, expires = s.kept, s.expires
    if other then kept, expires = join(kept, expires, other.kept, other.expires) end
    if kept == value then kept = nil end
    return s.a, s.b, s.c, kept, expires, other
  end

  local function charge(k, value, t, times)
    local q, cost = t.q, t.cost
    if q == nil then q = quota_of(t) end
    if not q then return cost == 0 and times or 0 end
    local a, b, c, kept, expires, other
    if not value then
      a, b, c = q.seed(0)
    elseif has_states and value.q == q then
      a, b, c = value.a, value.b, value.c
    else
      local set_back
      if not has_states or not value.q then
        a, b, c, expires, set_back = q.load(value, has_long > 0 and #value == LONG and keys[k])
      end
      if not a then
        a, b, c, kept, expires, other = open(k, q, value)
      elseif set_back then
        whole(k, value)
        kept, expires = q.store(a, b, c)
      elseif t.is_log and value == values[k] then
        -- One that owes frees nothing before it has paid.
        logs[k], needs[k] = a, max(needs[k] or 1, b + 1 - q.max)
      end
    end
    if cost == 0 then return times, kept, expires end
    if times == 0 or cost > q.max then return 0, kept, expires end
    local n, x, y, z = times, q.after(t, a, b, c, times)
    if not x then
      -- As many as fit.
      local most = times - 1
      n = 0
      while n < most do
        local mid = ceil((n + most) / 2)
        if q.after(t, a, b, c, mid) then n = mid else most = mid - 1 end
      end
      if t.is_log then
        -- The wait depends on the oldest entries. Those for a cost of up to the next power of two are returned, so
        -- that few questions are needed where costs rise.
        local _, power = math.frexp(cost - 1)
        needs[k] = max(needs[k] or 0, b + n * cost + min(2 ^ power, q.max) - q.max)
      end
      if n == 0 then return 0, kept, expires end
      x, y, z = q.after(t, a, b, c, n)
    end
    if t.is_log and not other then
      has_states = true
      return n, { q = q, a = x, b = y, c = z }, now + q.micros
    end
    local new, ends = q.store(x, y, z)
    if other then
      local p = other.q
      return n, join(new, ends, p.store(p.count(other.a, other.b, other.c, n * cost)))
    end
    if ends == expires and not kept and value == values[k] and #new == #value then ends = nil end
    return n, new, ends
  end

  -- What the answers depend on of a log: the oldest entries, as many as are needed, and the cost of all others at the
  -- moment of the newest.
  local function summary(l, need)
    local left, list = l.total, {}
    for place = l.first, l.first + l.count - 1 do
      if need <= 0 then break end
      local moment, cost = l.q.entry(l, place)
      list[#list + 1], left, need = write('<I7I4', moment, cost), left - cost, need - cost
    end
    if left > 0 then list[#list + 1] = write('<I7I4', l.newest, left) end
    return l.q.head .. write('<BI4I4I4', 4, l.total, 0, #list) .. concat(list)
  end

  -- What to write into a log that is long, and where; nil if there is no room.
  local function edits(q, key, l, total, added)
    local place, count, last = l.first + l.count, l.count + 1, 0
    if l.count > 0 and l.newest == now then
      place, count, last = place - 1, l.count, select(2, q.entry(l, place - 1))
    end
    if not l.name or (last == 0 and not l.has_room) then return nil end
    if last + added >= 256 ^ l.wide or 7 * l.first > count then return nil end
    return { key, l.base + place * l.size - 1, write(l.form, now, last + added) },
      { key, l.base - 13, write('<I4I4I4', total, l.first, count) }
  end

  -- Makes the logs bytes again. Returns those whose expiry is to be extended, and what to write into them.
  local function finish()
    local extended, edited = {}, {}
    for k, l in pairs(logs) do values[k] = summary(l, needs[k]) end
    for k = 1, has_states and #keys or 0 do
      local new = news[k]
      if new and new.q then
        local one, other = edits(new.q, keys[k], new.a, new.b, new.c)
        if one then
          extended[#extended + 1], news[k] = k, nil
          edited[#edited + 1], edited[#edited + 2] = one, other
        else
          news[k] = new.q.store(new.a, new.b, new.c)
        end
      end
    end
    return extended, edited
  end

  return { charge = charge, finish = finish, read_states = read_states }
end

-- Charges a term to a counter, up to `times` times. Returns how often it fits; and if the counter changes, its new
-- bytes (of a log, the state) and when they expire (nil: when the key does already, and they are as many as before).
local function charge(k, value, t, times)
  -- The common case, in one step: a bucket whose units take whole microseconds is not marked, the charge fits without a
  -- delay, and the clock was not set back.
  if t.quick > 0 and value and #value == t.size then
    local head, full = read(t.form, value)
    if head == t.head and full < EXACT then
      local line = full - full % t.grid
      if full < now then full = now end
      full = full + times * t.quick
      if full <= t.latest then
        local ends = full - full % t.grid
        if ends == line and value == values[k] then ends = nil else ends = ends + 2 * t.grid end
        return times, write(t.form, head, full), ends
      end
    end
  end
  general = general or make_general()
  return general.charge(k, value, t, times)
end

-- Decides the groups. `asked`: how many counters of runs came before.
local function decide_groups(terms, asked, short)
  -- The charges of a group: counters, terms, and what is to be kept if all of them fit.
  local ks, ts, charged, ends_of, seen = {}, {}, {}, {}, {}

  -- Charges the `n` counters of a group this many times, one after the other, if all of it fits. For zero times, the
  -- counters only switch to the quotas that they were asked under. `is_repeated`: some counter is charged twice.
  local function charge_all(n, times, is_repeated)
    local fits, again = true, is_repeated and {}
    for j = 1, n do
      local k, passed = ks[j], nil
      passed, charged[j], ends_of[j] = charge(k, again and again[k] or news[k] or values[k], ts[j], times)
      if passed < times then fits = false end
      if again then again[k] = charged[j] or again[k] end
    end
    if not fits then return false end
    for j = 1, n do
      if charged[j] then news[ks[j]], expiries[ks[j]] = charged[j], ends_of[j] end
    end
    return true
  end

  for group = 1, group_count do
    local times, n, is_repeated
    times, n, at = read('<HH', question, at)
    for j = 1, n do
      local k, i
      k, i, at = read('<HH', question, at)
      is_repeated = is_repeated or seen[k] == group
      ks[j], ts[j], seen[k] = k, terms[i], group
    end
    local passed, step = 0, is_repeated and 1 or times
    while passed < times and step >= 1 do
      local some = min(step, times - passed)
      if charge_all(n, some, is_repeated) then passed = passed + some else step = floor(step / 2) end
    end
    if passed < times then
      charge_all(n, 0, is_repeated)
      short[#short + 1] = write('<HH', asked + group - 1, passed)
    end
  end
end

-- Reads and decides everything, and writes nothing. Returns the counters of runs and groups that were not admitted as
-- often as asked; and the logs whose expiry is to be extended, and what to write into them, if there are any.
local function decide()
  if has_long > 0 then
    for k = 1, #keys do
      local value = redis.pcall('GETRANGE', keys[k], 0, LONG - 1)
      -- A key that is not a string is not ours.
      if value.err and not string.find(value.err, 'WRONGTYPE', 1, true) then error(value.err, 0) end
      values[k] = not value.err and value ~= '' and value
    end
  elseif #keys <= 4096 then
    values = call('MGET', unpack(keys))
  else
    -- Lua cannot pass more arguments at once.
    for from = 1, #keys, 4096 do
      local part = call('MGET', unpack(keys, from, min(from + 4095, #keys)))
      for i = 1, #part do values[from + i - 1] = part[i] end
    end
  end

  local terms, asked, short = {}, 0, {}
  for i = 1, term_count do
    local cost, patience, quick, fill, unit, form, head
    cost, patience, quick, fill, unit, form, head, at = read('<I4ddddBc0Bc0', question, at)
    terms[i] = { cost = cost, patience = patience, head = head, quick = quick, latest = now + fill, size = #head + 7,
      form = form, grid = min(max(8 * unit, 1e6), 3.6e9) }
  end
  for _ = 1, run_count do
    local i, first, last, with_times
    i, first, last, with_times, at = read('<HHHB', question, at)
    local t, times = terms[i], 1
    local quick, size, form, head, grid, latest = t.quick, t.size, t.form, t.head, t.grid, t.latest
    for k = first, last do
      if with_times > 0 then times, at = read('<H', question, at) end
      local value = values[k]
      local passed, new, expires
      -- The common case, as in `charge`, but by local variables: almost all charges are made here.
      if quick > 0 and value and #value == size then
        local own, full = read(form, value)
        if own == head and full < EXACT then
          local line = full - full % grid
          if full < now then full = now end
          full = full + times * quick
          if full <= latest then
            local ends = full - full % grid
            if ends ~= line then expires = ends + 2 * grid end
            passed, new = times, write(form, head, full)
          end
        end
      end
      if not passed then passed, new, expires = charge(k, value, t, times) end
      if new then news[k], expiries[k] = new, expires end
      if passed < times then short[#short + 1] = write('<HH', asked + k - first, passed) end
    end
    asked = asked + last - first + 1
  end
  if group_count > 0 then decide_groups(terms, asked, short) end
  if asked + group_count == 0 then
    -- Only looked at. What is not a counter may be of any size.
    general = make_general()
    for k = 1, #keys do values[k] = values[k] and general.read_states(values[k]) and values[k] end
  end
  if general then return short, general.finish() end
  return short
end

local is_done, short, extended, edited = pcall(decide)
if not is_done then return redis.error_reply('RKREFUSED ' .. (short.err or short)) end

-- If Redis refuses one of the commands, it does so before a counter has changed: neither a later expiry nor writing
-- nothing changes any. To change a value where it is takes Redis less time than to replace it.
local in_place = edited and edited[1] and edited[1][1]
if #keys > 1 then
  for k = 1, #keys do
    if news[k] and not expiries[k] then
      in_place = keys[k]
      break
    end
  end
end
for i = 1, extended and #extended or 0 do
  call('PEXPIREAT', keys[extended[i]], expiry(expiries[extended[i]]))
end
if in_place then call('SETRANGE', in_place, '0', '') end
local last, last_expiry = nil, nil
for k, expires in pairs(expiries) do
  if expires ~= last then last, last_expiry = expires, expiry(expires) end
  if news[k] then call('SET', keys[k], news[k], 'PXAT', last_expiry) end
end
for k = 1, #keys do
  local new = news[k]
  if new and not expiries[k] then call('SETRANGE', keys[k], '0', new) end
end
for i = 1, edited and #edited or 0 do call('SETRANGE', unpack(edited[i])) end

-- The answer.
local size, are_same = #(values[1] or ''), true
for k = 1, #keys do
  local value = values[k]
  if not value then
    value, values[k] = '', ''
  end
  if #value ~= size then are_same = false end
end
local answer = write('<I4dBH', id, now, 0, #short) .. table.concat(short)
if are_same and size > 0 and size < 255 then return answer .. string.char(size) .. table.concat(values) end
local sizes = {}
for k = 1, #keys do
  local own = #values[k]
  sizes[k] = own < 255 and string.char(own) or string.char(255) .. write('<I4', own)
end
return answer .. '\0' .. table.concat(sizes) .. table.concat(values)
