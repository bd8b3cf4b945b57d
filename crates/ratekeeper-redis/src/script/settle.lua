-- Settles what was charged: gives back, or takes what is due whether or not it fits.
--
-- KEYS: the counters.
-- ARGV[1], packed by `batch/settlement.rs`: deadline, time (see the prelude); the number of settlements, and these,
-- in their order. Each is a counter, a cost, when it was charged (-1: any charge), when the budget was then going to
-- be full, when the request was to leave, and the head of the quota that it is due under (none: it is given back).
-- Returns how many counters have changed. The error RKREFUSED says that nothing was written.

local read_quota, read_states, switch, join = prelude()
local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, LEAKY_BUCKET = 0, 1, 2, 3, 4
local sub, concat, U32 = string.sub, table.concat, 4294967295
local count
count, at = read('<H', question, at)

-- For each algorithm, the state from which a cost was taken, whether or not it fits.
local debit, refund = {}, {}

debit[TOKEN_BUCKET] = function(q, full, parts, _, cost)
  local after, after_parts = q.plus(full, parts, cost)
  local most, most_parts = q.debt()
  -- Reservations may have taken more than may be owed.
  if q.is_longer(full - now, parts, most, most_parts) then return full, parts end
  if q.is_longer(after - now, after_parts, most, most_parts) then return now + most, most_parts end
  return after, after_parts
end

debit[LEAKY_BUCKET] = debit[TOKEN_BUCKET]

debit[FIXED_WINDOW] = function(_, start, counted, _, cost)
  return start, min(counted + cost, U32)
end

debit[SLIDING_WINDOW] = function(_, index, before, counted, cost)
  return index, before, min(counted + cost, U32)
end

debit[SLIDING_LOG] = function(q, l, total, _, cost, charged)
  cost = min(cost, U32 - total)
  if cost == 0 then return l, total, 0 end
  for place = l.first + l.count - 1, l.first, -1 do
    local moment, units = q.entry(l, place)
    if moment < charged then break end
    if moment == charged then
      local text, wide = q.entries(l, q.width(units + cost))
      local from = (place - l.first) * (7 + wide) + 8
      text = sub(text, 1, from - 1) .. write('<I' .. wide, units + cost) .. sub(text, from + wide)
      return q.from_text(text, wide), total + cost, 0
    end
  end
  return q.with(l, cost), total + cost, 0
end

-- For each algorithm, the state to which a cost was given back. Nil if it stays as it is. If the clock was set back to
-- before the charge, it is unknown whether the charge still counts, and nothing is given back.

-- What is left of a bucket's wait without a part of it.
local function less(q, left, parts, back, back_parts)
  if not q.is_longer(left, parts, back, back_parts) then return 0, 0 end
  left, parts = left - back, parts - back_parts
  if parts < 0 then left, parts = left - 1, parts + q.units end
  return left, parts
end

refund[TOKEN_BUCKET] = function(q, full, parts, _, cost, charged, reset)
  if full == now and parts == 0 then return nil end
  local back, back_parts = q.span(cost)
  if charged >= 0 then
    -- What has come back by itself does not come back a second time.
    local due = charged > now and 0 or max(reset - now, 0)
    if q.is_longer(back, back_parts, due, 0) then back, back_parts = due, 0 end
  end
  local left, left_parts = less(q, full - now, parts, back, back_parts)
  return now + left, left_parts
end

refund[LEAKY_BUCKET] = function(q, full, parts, _, cost, charged, reset, departs)
  if full == now and parts == 0 then return nil end
  -- Only the last in line can leave.
  if charged < 0 or reset ~= full + (parts > 0 and 1 or 0) then return full, parts end
  local left, left_parts = less(q, full - now, parts, q.span(cost))
  if departs < now then
    -- It has left, and the next one has to keep its distance.
    local one, one_parts = q.span(1)
    local least, least_parts = less(q, one, one_parts, now - departs, 0)
    if q.is_longer(least, least_parts, left, left_parts) then left, left_parts = least, least_parts end
    if q.is_longer(left, left_parts, full - now, parts) then left, left_parts = full - now, parts end
  end
  return now + left, left_parts
end

refund[FIXED_WINDOW] = function(_, start, counted, _, cost, charged)
  if charged >= 0 and (charged < start or charged > now) then return nil end
  return start, max(counted - cost, 0)
end

refund[SLIDING_WINDOW] = function(q, index, before, counted, cost, charged)
  local window = charged < 0 and index or floor(charged / q.micros)
  if charged > now then return index, before, counted end
  if window >= index then return index, before, max(counted - cost, 0) end
  if window + 1 == index then before = max(before - cost, 0) end
  return index, before, counted
end

refund[SLIDING_LOG] = function(q, l, total, _, cost, charged)
  local text, wide = q.entries(l, l.wide)
  -- From the newest on, what is left of the entries that are looked at. Those before them stay as they are.
  local tail, from = {}, #text - l.size + 1
  while from > 0 do
    local moment, units = read(l.form, text, from)
    if charged < 0 or moment == charged then
      local struck = min(cost, units)
      units, total, cost = units - struck, total - struck, cost - struck
    end
    if units > 0 then tail[#tail + 1] = write(l.form, moment, units) end
    from = from - l.size
    if cost == 0 or (charged >= 0 and moment < charged) then break end
  end
  for i = 1, floor(#tail / 2) do tail[i], tail[#tail + 1 - i] = tail[#tail + 1 - i], tail[i] end
  return q.from_text(sub(text, 1, from + l.size - 1) .. concat(tail), wide), total, 0
end

-- Gives back to one of the states of a counter.
local function give_back(s, ...)
  local a, b, c = refund[s.q.algorithm](s.q, s.a, s.b, s.c, ...)
  if a then s.kept, s.expires = s.q.store(a, b, c) end
end

local news, expiries = {}, {}

-- Reads and computes everything, and writes nothing.
local function settle()
  local values = call('MGET', unpack(keys))
  for _ = 1, count do
    local k, cost, charged, reset, departs, head
    k, cost, charged, reset, departs, head, at = read('<HI4dddBc0', question, at)
    local value = news[k] or values[k]
    local current, previous
    if value then current, previous = read_states(value) end
    if head == '' then
      if current then give_back(current, cost, charged, reset, departs) end
      if previous then give_back(previous, cost, charged, reset, departs) end
    else
      local q = read_quota(head)
      current, previous = switch(q, current, previous)
      if not current then
        current = { q = q }
        current.a, current.b, current.c = q.seed(0)
      end
      local a, b, c = debit[q.algorithm](q, current.a, current.b, current.c, cost, charged)
      current.kept, current.expires = q.store(a, b, c)
      if previous then
        local p = previous.q
        a, b, c = p.count(previous.a, previous.b, previous.c, cost)
        previous.kept, previous.expires = p.store(a, b, c)
      end
    end
    if current then
      local new, expires = current.kept, current.expires
      if previous then new, expires = join(new, expires, previous.kept, previous.expires) end
      if new ~= value then news[k], expiries[k] = new, expires end
    end
  end
end

local is_done, refused = pcall(settle)
if not is_done then return redis.error_reply('RKREFUSED ' .. (refused.err or refused)) end
local changed = 0
for k, new in pairs(news) do
  call('SET', keys[k], new, 'PXAT', expiry(expiries[k]))
  changed = changed + 1
end
return changed
