-- Reads a counter under a quota, whatever it was counted under before. Both scripts have defined their `now`
-- and `values`, and the names of the algorithms, before this.

-- For each counter: the term that it was read under last, up to three numbers, whether reading it has changed
-- it, and whether it is to be written. The numbers of a bucket are the microsecond and the fraction at which
-- it is full, and whether it owes; of a fixed window: start, count; of a sliding window: index, previous,
-- current; of a log: cost of all, moment of the newest entry.
local owners, xs, ys, zs, changed, dirty = {}, {}, {}, {}, {}, {}
-- For logs: the entries, how wide their costs are, and what is to be added; what to answer instead of the
-- whole log, and how much of its oldest entries the answers depend on.
local logs, wides, added, before, needs = {}, {}, {}, {}, {}
-- For windows in which nothing was counted since they were read: their bytes. A window that is over counts
-- nothing, and yet must be written as it was, since it counts again if the clock is set back.
local as_read = {}

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

-- Sets the counter of a key to one of which this many units are used.
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
    xs[k], ys[k], zs[k] = now + micros, parts, false
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

-- The value to keep for a counter, and for how long it matters.
local function value_of(k)
  local t = owners[k]
  local algorithm = t.algorithm
  if t.is_bucket then
    local value = write_bucket(t.head, xs[k], ys[k], t.wide, zs[k])
    if xs[k] < now or (xs[k] == now and ys[k] == 0) then return value, 0 end
    return value, xs[k] - xs[k] % t.grid + 2 * t.grid - now
  elseif algorithm == FIXED_WINDOW then
    local value = as_read[k] or write_fixed_window(t.head, xs[k], ys[k])
    return value, ys[k] > 0 and xs[k] + t.period - now or 0
  elseif algorithm == SLIDING_WINDOW then
    local windows = zs[k] > 0 and 2 or (ys[k] > 0 and 1 or 0)
    local value = as_read[k] or write_sliding_window(t.head, xs[k], ys[k], zs[k])
    return value, (xs[k] + windows) * t.period - now
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

-- Treats a value that is not a counter as absent. It is not ours, may be of any size, and may be there for
-- ever.
local function foreign(k, t)
  values[k], changed[k] = false, true
  return seed(k, t, 0)
end

-- Reads a counter under a term of its own rate or period. `summed`: whether a log may be answered as a
-- summary.
local function bring_plain(k, t, value, summed)
  local head, algorithm = t.head, t.algorithm
  owners[k], before[k] = t, nil
  if not value then return seed(k, t, 0) end
  local from, wide = #head + 1, t.wide
  if sub(value, 1, #head) ~= head then
    -- The same, written differently: a log whose costs have another width.
    local old, _
    old, _, _, from, wide = read_head(value)
    if not old then return foreign(k, t) end
    changed[k], summed = true, false
  end
  if t.is_bucket then
    if #value ~= from + 6 + wide then return foreign(k, t) end
    xs[k], ys[k], zs[k] = read_bucket(value, from, wide)
    if xs[k] >= EXACT or ys[k] >= t.units then return foreign(k, t) end
    return
  end
  if not read_head(value) then return foreign(k, t) end
  if algorithm == FIXED_WINDOW then
    local set_back
    xs[k], ys[k], set_back = read_fixed_window(value, from, t.period, now)
    changed[k] = changed[k] or set_back
  elseif algorithm == SLIDING_WINDOW then
    local set_back
    xs[k], ys[k], zs[k], set_back = read_sliding_window(value, from, t.period, now)
    changed[k] = changed[k] or set_back
  else
    if wide ~= t.wide and not is_log(value, from, wide) then return seed(k, t, 0) end
    local set_back, left
    xs[k], logs[k], ys[k], set_back, left = read_log(value, from, wide, t.period, now)
    logs[k], wides[k] = widen(logs[k], wide, t.wide)
    added[k], changed[k] = 0, changed[k] or set_back or left
    if summed and not set_back then
      before[k], needs[k] = { t, xs[k], logs[k], ys[k] }, xs[k] + 1 - t.max
    end
  end
end

-- Whether a wait is longer than a full refill.
local function is_debt(t, micros, parts)
  return micros > t.fill or (micros == t.fill and parts > t.fill_parts)
end

-- How long until a bucket is full, capped at the longest that it can take: if it is longer, the clock was set
-- back.
local function wait_of(k, t)
  local micros, parts = xs[k] - now, ys[k]
  if micros < 0 then return 0, 0 end
  if is_debt(t, micros, parts) then
    local most, most_parts = t.fill, t.fill_parts
    if zs[k] then most, most_parts = longest_debt(t) end
    if micros > most or (micros == most and parts > most_parts) then return most, most_parts end
  end
  return micros, parts
end
