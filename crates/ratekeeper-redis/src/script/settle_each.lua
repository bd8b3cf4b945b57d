-- For how long the counters that have changed matter.
local lives = {}

local function put(k, value, left)
  values[k], lives[k] = left > 0 and value or false, left
end

-- Adds to the entry that a log has for a moment, if it has one.
local function log_at(k, moment, cost)
  local entries, wide = logs[k], wides[k]
  local size = 7 + wide
  for entry = #entries - size + 1, 1, -size do
    local of = number(entries, entry, 7)
    if of < moment then return false end
    if of == moment then
      cost = cost + number(entries, entry + 7, wide)
      if width(cost) > wide then
        local place = (entry - 1) / size
        entries, wide = widen(entries, wide, width(cost))
        size = 7 + wide
        entry = place * size + 1
      end
      logs[k] = sub(entries, 1, entry + 6) .. write('<I' .. wide, cost) .. sub(entries, entry + size)
      wides[k] = wide
      return true
    end
  end
  return false
end

-- Takes what is due, whether or not it fits.
local function debit(k, t)
  owners[k], besides[k], forgotten[k] = nil, nil, nil
  bring(k, t)
  if t.is_bucket then
    local micros, parts = wait_of(k, t)
    micros, parts = micros + t.cost, parts + t.cost_parts
    if parts >= t.units then micros, parts = micros + 1, parts - t.units end
    local most, most_parts = longest_debt(t)
    if micros > most or (micros == most and parts > most_parts) then micros, parts = most, most_parts end
    xs[k], ys[k], zs[k] = now + micros, parts, is_debt(t, micros, parts)
  elseif t.algorithm == FIXED_WINDOW then
    ys[k] = math.min(ys[k] + t.cost, U32)
  elseif t.algorithm == SLIDING_WINDOW then
    zs[k] = math.min(zs[k] + t.cost, U32)
  else
    local cost = math.min(t.cost, U32 - xs[k])
    xs[k] = xs[k] + cost
    if not log_at(k, t.charged, cost) then
      logs[k], wides[k] = widen(logs[k], wides[k], math.max(wides[k], width(cost)))
      added[k] = cost
    end
  end
  forgotten[k], as_read[k] = nil, nil
  press(k, t, t.count)
  put(k, close(k, value_of(k)))
end

-- For how long a counter matters.
local function left_of(value)
  local algorithm, units, micros, from, wide = read_head(value)
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    local full, parts = read_bucket(value, from, wide)
    if full < now or (full == now and parts == 0) then return 0 end
    local grid = math.min(math.max(8 * micros / units, 1e6), 3.6e9)
    return full - full % grid + 2 * grid - now
  end
  return counts_until(value) - now
end

-- A counter after a refund. `charged`: when it was charged, or -1 if any charge will do; `reset`: when the
-- budget was going to be full after that. Nil if the counter stays as it is. If the clock was set back since,
-- it is unknown whether the charge still counts, and so nothing is given back for it.
local function given_back(value, cost, charged, reset)
  local algorithm, units, micros, from, wide = read_head(value)
  local head = sub(value, 1, from - 1)
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    local full, parts, owes = read_bucket(value, from, wide)
    local left = full - now
    if left < 0 then return end
    if algorithm == LEAKY_BUCKET then
      -- Only the last in line can leave.
      if charged < 0 or reset ~= now + left + (parts > 0 and 1 or 0) then return end
    end
    local back, back_parts = span(cost, units, micros)
    if algorithm == LEAKY_BUCKET and (back > left or (back == left and back_parts > parts)) then
      -- It has left, and the next one still has to keep its distance.
      back, back_parts = span(cost - 1, units, micros)
    end
    if algorithm == TOKEN_BUCKET and charged >= 0 then
      -- What has come back by itself does not come back a second time.
      local due = charged > now and 0 or math.max(reset - now, 0)
      if back > due or (back == due and back_parts > 0) then back, back_parts = due, 0 end
    end
    if back > left or (back == left and back_parts >= parts) then
      return write_bucket(head, now, 0, wide, false)
    end
    left, parts = left - back, parts - back_parts
    if parts < 0 then left, parts = left - 1, parts + units end
    return write_bucket(head, now + left, parts, wide, owes)
  elseif algorithm == FIXED_WINDOW then
    local start, counted = read_fixed_window(value, from, micros, now)
    if charged >= 0 and (charged < start or charged > now) then return end
    return write_fixed_window(head, start, math.max(counted - cost, 0))
  elseif algorithm == SLIDING_WINDOW then
    local index, previous, current = read_sliding_window(value, from, micros, now)
    local window = charged >= 0 and floor(charged / micros) or index
    if charged > now then
      -- Nothing.
    elseif window >= index then
      current = math.max(current - cost, 0)
    elseif window + 1 == index then
      previous = math.max(previous - cost, 0)
    end
    return write_sliding_window(head, index, previous, current)
  end
  local total, entries = read_log(value, from, wide, micros, now)
  local size = 7 + wide
  -- From the newest on, what is left of the entries that are looked at. Those before them stay as they are.
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
  return head .. write('<I4', entries == '' and 0 or math.max(total, 0)) .. entries
end

-- The count of a fixed window.
local function window_count(value)
  local algorithm, _, micros, from = read_head(value)
  if algorithm ~= FIXED_WINDOW then return 0 end
  local _, counted = read_fixed_window(value, from, micros, now)
  return counted
end

-- A guard after giving back what was taken off the count of its window.
local function guard_given_back(guard, parts, limit, old, new)
  local units = window_count(old) - window_count(new)
  if guard == 0 or units == 0 then return guard, parts end
  local _, _, period = read_head(old)
  local left, left_parts = guard_with(guard, parts, period, limit, 0)
  local back, back_parts = span(units, limit, period)
  if back > left or (back == left and back_parts >= left_parts) then return now, 0 end
  left, left_parts = left - back, left_parts - back_parts
  if left_parts < 0 then left, left_parts = left - 1, left_parts + limit end
  return now + left, left_parts
end

-- Gives back to a counter that is kept beside. The time at which a bucket was going to be full is that of the
-- quota that was asked. For this one, it is known what the charge itself took.
local function given_back_beside(value, cost, charged, reset)
  local algorithm, units, micros = read_head(value)
  if algorithm == TOKEN_BUCKET and charged >= 0 then
    local took, parts = span(cost, units, micros)
    reset = charged + took + (parts > 0 and 1 or 0)
  end
  return given_back(value, cost, charged, reset) or value
end

-- Gives back, to all quotas if there are several.
local function refund(k, cost, charged, reset)
  local value, b = values[k], nil
  if not value then return end
  if is_several(value) then
    value, b = open(value)
    if not value then return end
    if is_over(k, b, value) then b = nil end
  elseif not read_head(value) then
    return
  end
  local new = given_back(value, cost, charged, reset)
  besides[k], forgotten[k] = b, nil
  if b then
    b.guard, b.parts = guard_given_back(b.guard, b.parts, b.max, value, new or value)
    local other = b.other
    b.other = given_back_beside(other, cost, charged, reset)
    if b.loosest then b.loosest = given_back_beside(b.loosest, cost, charged, reset) end
    b.others_guard, b.others_parts = guard_given_back(b.others_guard, b.others_parts, b.others_max, other, b.other)
  elseif not new and value == values[k] then
    return
  end
  new = new or value
  put(k, close(k, new, left_of(new)))
end

for _ = 1, count do
  local k, algorithm
  k, algorithm, at = read('<HB', ask, at)
  if algorithm == 255 then
    local cost, charged, reset
    cost, charged, reset, at = read('<ddd', ask, at)
    refund(k, cost, charged, reset)
  else
    local t = { algorithm = algorithm }
    t.head, t.max, t.cost, at = read('<Bc0dd', ask, at)
    t.is_bucket = algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET
    if t.is_bucket then
      t.cost_parts, t.fill, t.fill_parts, t.units, t.micros, t.count, t.wide, at = read('<ddddddB', ask, at)
      t.grid = math.min(math.max(8 * t.micros / t.units, 1e6), 3.6e9)
    else
      t.period, t.charged, t.wide, at = read('<ddB', ask, at)
      t.count = t.cost
    end
    debit(k, t)
  end
end

-- Everything is computed before the first counter is written, so that a script that fails has done nothing.
local done = 0
for k = 1, #keys do
  local left = lives[k]
  if left then
    done = done + 1
    if left > 0 then
      call('SET', keys[k], with_room(values[k]), AT, ceil((origin + left) / 1000))
    else
      call('DEL', keys[k])
    end
  end
end
return done
