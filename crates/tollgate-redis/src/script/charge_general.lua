-- Of each counter: the term that it was read under last, up to three numbers, whether reading it has changed it,
-- whether it is to be written. Numbers of a bucket: microsecond and parts at which it is whole; of a fixed window:
-- start, count; of a sliding one: index, previous, current; of a log: cost of all, moment of the newest entry.
local owners, xs, ys, zs, changed, dirty = {}, {}, {}, {}, {}, {}
-- Of logs: the entries, how wide their costs are, what is to be added; what to answer instead of the whole log, and
-- how much of its oldest entries the answers depend on.
local logs, wides, added, before, needs = {}, {}, {}, {}, {}

-- How much of a counter is used now, whatever it was counted under.
local function used(value)
  local algorithm, units, micros, from, wide = read_head(value)
  if not algorithm then return 0 end
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    local full, parts = read_bucket(value, from, wide)
    if full < now then return 0 end
    return ((full - now) * units + parts) / micros
  elseif algorithm == FIXED_WINDOW then
    local _, count = read_fixed_window(value, from, micros, now)
    return count
  elseif algorithm == SLIDING_WINDOW then
    local index, previous, current = read_sliding_window(value, from, micros, now)
    return previous * ((index + 1) * micros - now) / micros + current
  end
  if not is_log(value, from, wide) then return 0 end
  return (read_log(value, from, wide, micros, now))
end

-- The entries of a log with costs of another width, or of the width that they need.
local function widen(entries, from, to)
  if from == to then return entries, to end
  local list, largest = {}, 0
  for entry = 1, #entries, 7 + from do
    local cost = number(entries, entry + 7, from)
    largest = math.max(largest, cost)
    list[#list + 1] = { sub(entries, entry, entry + 6), cost }
  end
  to = math.max(to, width(largest))
  for i, entry in ipairs(list) do list[i] = entry[1] .. write('<I' .. to, entry[2]) end
  return table.concat(list), to
end

-- The counter of a key of which so many units are used.
local function seed(k, t, units)
  local algorithm = t.algorithm
  if t.is_bucket then
    local micros, parts = t.fill, t.fill_parts
    if units == 0 then
      micros, parts = 0, 0
    elseif units < t.max then
      local all = ceil(units * t.micros)
      if all < EXACT then
        parts = all % t.units
        micros = (all - parts) / t.units
      else
        micros, parts = ceil(all / t.units), 0
      end
      if micros > t.fill or (micros == t.fill and parts > t.fill_parts) then
        micros, parts = t.fill, t.fill_parts
      end
    end
    xs[k], ys[k] = now + micros, parts
  elseif algorithm == FIXED_WINDOW then
    xs[k], ys[k] = now - now % t.period, ceil(units)
  elseif algorithm == SLIDING_WINDOW then
    xs[k], ys[k], zs[k] = floor(now / t.period), 0, ceil(units)
  else
    units = ceil(units)
    xs[k], ys[k], logs[k], wides[k], added[k] = units, 0, '', t.wide, 0
    if units > 0 then
      wides[k] = math.max(t.wide, width(units))
      logs[k], ys[k] = write('<I7I' .. wides[k], now, units), now
    end
  end
end

-- What is to be kept of a counter, and for how long it matters.
local function value_of(k)
  local t = owners[k]
  local algorithm = t.algorithm
  if t.is_bucket then
    if xs[k] < now or (xs[k] == now and ys[k] == 0) then return '', 0 end
    return write_bucket(t.head, xs[k], ys[k], t.wide), xs[k] - xs[k] % t.grid + 2 * t.grid - now
  elseif algorithm == FIXED_WINDOW then
    return write_fixed_window(t.head, xs[k], ys[k]), ys[k] > 0 and xs[k] + t.period - now or 0
  elseif algorithm == SLIDING_WINDOW then
    local windows = zs[k] > 0 and 2 or (ys[k] > 0 and 1 or 0)
    return write_sliding_window(t.head, xs[k], ys[k], zs[k]), (xs[k] + windows) * t.period - now
  end
  local entries, newest, wide, more = logs[k], ys[k], wides[k], added[k]
  if more > 0 then
    if newest == now then
      local last = number(entries, #entries - wide + 1, wide)
      if width(last + more) <= wide then
        entries, more = sub(entries, 1, #entries - 7 - wide), last + more
      end
    end
    entries, newest = entries .. write('<I7I' .. wide, now, more), now
  end
  local head = t.head
  if wide ~= t.wide then head = char(byte(head, 1) + 25 * (wide - t.wide)) .. sub(head, 2) end
  return head .. write('<I4', xs[k]) .. entries, newest + t.period - now
end

-- Counts something that is no counter as none. It is not ours, may be of any size, and may be there for ever.
local function foreign(k, t)
  values[k], changed[k] = false, true
  return seed(k, t, 0)
end

-- Reads a counter under a term, or re-reads it if it was counted under another quota.
local function bring(k, t)
  local value, head, algorithm = values[k], t.head, t.algorithm
  local owner = owners[k]
  owners[k] = t
  if owner then
    if owner.head == head then
      if before[k] then needs[k] = math.max(needs[k], xs[k] + 1 - t.max) end
      return
    end
    -- An earlier request of this call had another quota.
    owners[k], before[k] = owner, nil
    local left
    value, left = value_of(k)
    owners[k] = t
    if left <= 0 then value = nil end
  end
  if not value then return seed(k, t, 0) end
  if sub(value, 1, #head) ~= head then
    local old, _, period, from, wide = read_head(value)
    if not old then return foreign(k, t) end
    changed[k] = true
    if old ~= SLIDING_LOG or algorithm ~= SLIDING_LOG then
      return seed(k, t, math.min(used(value), t.max))
    end
    -- The moments of a log mean the same, whatever the period; but what has left has left.
    if not is_log(value, from, wide) then return seed(k, t, 0) end
    xs[k], logs[k], ys[k] = read_log(value, from, wide, math.min(period, t.period), now)
    logs[k], wides[k] = widen(logs[k], wide, t.wide)
    added[k] = 0
    return
  end
  local from = #head + 1
  if t.is_bucket then
    if #value ~= from + 6 + t.wide then return foreign(k, t) end
    xs[k], ys[k] = read_bucket(value, from, t.wide)
    if xs[k] >= EXACT or ys[k] >= t.units then return foreign(k, t) end
    return
  end
  if not read_head(value) then return foreign(k, t) end
  if algorithm == FIXED_WINDOW then
    xs[k], ys[k], changed[k] = read_fixed_window(value, from, t.period, now)
  elseif algorithm == SLIDING_WINDOW then
    xs[k], ys[k], zs[k], changed[k] = read_sliding_window(value, from, t.period, now)
  else
    local set_back, left
    xs[k], logs[k], ys[k], set_back, left = read_log(value, from, t.wide, t.period, now)
    wides[k], added[k], changed[k] = t.wide, 0, set_back or left
    if not owner and not set_back then
      before[k], needs[k] = { t, xs[k], logs[k], ys[k] }, xs[k] + 1 - t.max
    end
  end
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

-- Whether a term fits into a counter; of buckets, also how long it would take to be whole then.
local function fits(k, t)
  if t.is_bucket then
    local micros, parts, fill = xs[k] - now, ys[k], t.fill
    if micros < 0 then
      micros, parts = 0, 0
    elseif micros > fill or (micros == fill and parts > t.fill_parts) then
      micros, parts = fill, t.fill_parts
    end
    micros, parts = micros + t.cost, parts + t.cost_parts
    if parts >= t.units then micros, parts = micros + 1, parts - t.units end
    return micros < fill or (micros == fill and parts <= t.fill_parts), micros, parts
  end
  local algorithm = t.algorithm
  -- Nothing always fits, also where a smaller limit has left more than it allows.
  if t.cost == 0 then return true end
  if algorithm == FIXED_WINDOW then return ys[k] + t.cost <= t.max end
  if algorithm == SLIDING_LOG then return xs[k] + t.cost <= t.max end
  if algorithm == SLIDING_WINDOW then
    local room = t.max - zs[k] - t.cost
    if room < 0 then return false end
    return at_most(ys[k], (xs[k] + 1) * t.period - now, room, t.period)
  end
  return false
end

-- Charges a term that fits.
local function take(k, t, micros, parts)
  if t.algorithm == NEVER then return end
  if t.apply > 0 then
    -- Another charge of the same request came before it, and was part of what had to fit.
    t = terms[t.apply]
    bring(k, t)
    local _
    _, micros, parts = fits(k, t)
  end
  if t.is_bucket then
    xs[k], ys[k] = now + micros, parts
  elseif t.algorithm == FIXED_WINDOW then
    ys[k] = ys[k] + t.cost
  elseif t.algorithm == SLIDING_WINDOW then
    zs[k] = zs[k] + t.cost
  else
    xs[k], added[k] = xs[k] + t.cost, added[k] + t.cost
  end
  dirty[k] = true
end

-- Remembers that the quota changed or the clock was set back, though the request was denied: what it was told
-- holds only then.
local function settle(k, t)
  if t.algorithm == NEVER then return end
  bring(k, t)
  if t.is_bucket then
    local left = xs[k] - now
    if left > t.fill or (left == t.fill and ys[k] > t.fill_parts) then
      xs[k], ys[k], changed[k] = now + t.fill, t.fill_parts, true
    end
  elseif t.algorithm == SLIDING_LOG then
    needs[k] = math.max(needs[k] or 0, xs[k] + t.cost - t.max)
  end
  if changed[k] then dirty[k] = true end
end

-- Charges one term to one counter so many times, as often as it fits.
local function charge_alone(k, t, times)
  if t.algorithm == NEVER then return t.cost == 0 and times or 0 end
  if owners[k] ~= t then bring(k, t) end
  for passed = 1, times do
    local fit, micros, parts = fits(k, t)
    if not fit then
      settle(k, t)
      return passed - 1
    end
    take(k, t, micros, parts)
  end
  return times
end

for _, charge in ipairs(rest or {}) do
  admitted = admitted + charge_alone(charge[1], term_of[charge[2]], charge[3])
end

-- Spare groups come after the others, and were decided already if they were held.
for _ = 1, held and group_count or group_count + spare_count do
  local times, n, k, i
  times, n, k, i, at = read('<BHHH', ask, at)
  local passed = 0
  if n == 1 then
    passed = charge_alone(k, terms[i], times)
  else
    local ks, ts, micros, parts = { k }, { terms[i] }, {}, {}
    for j = 2, n do
      ks[j], i, at = read('<HH', ask, at)
      ts[j] = terms[i]
    end
    for _ = 1, times do
      local all = true
      for j = 1, n do
        local key, t = ks[j], ts[j]
        if t.algorithm == NEVER then
          all = all and t.cost == 0
        else
          if owners[key] ~= t then bring(key, t) end
          local fit
          fit, micros[j], parts[j] = fits(key, t)
          all = all and fit
        end
      end
      if not all then
        for j = 1, n do settle(ks[j], ts[j]) end
        break
      end
      for j = 1, n do take(ks[j], ts[j], micros[j], parts[j]) end
      passed = passed + 1
    end
  end
  admitted = admitted + passed
end

-- Of a log, what the answers depend on: the oldest entries, and the sum of the others in the place of the newest.
local function summary(k)
  local t, total, entries, newest = unpack(before[k])
  local wide, need, from = t.wide, needs[k], 1
  local largest, rest = 256 ^ wide - 1, total
  local last = 0
  while from <= #entries and (from == 1 or need > 0) do
    local moment, cost = number(entries, from, 7), number(entries, from + 7, wide)
    -- Only what is no log is not in order. Then the newest is all that is told of it.
    if moment < last or moment > newest or cost > rest then break end
    need, rest, from, last = need - cost, rest - cost, from + 7 + wide, moment
  end
  local out = { t.head, write('<I4', total), sub(entries, 1, from - 1) }
  while rest > 0 do
    local cost = math.min(rest, largest)
    out[#out + 1] = write('<I7I' .. wide, newest, cost)
    rest = rest - cost
  end
  return table.concat(out)
end

for k = 1, #keys do
  if dirty[k] then
    local value, left = value_of(k)
    if left > 0 then call('SET', keys[k], value, AT, moment(left)) else call('DEL', keys[k]) end
  end
  if before[k] then
    values[k] = summary(k)
  elseif is_peek and values[k] and not read_head(values[k]) then
    values[k] = false
  end
end

return answer()
