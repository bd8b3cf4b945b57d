-- Several quotas at once on one counter. Does what `beside.rs`, `change.rs`, `guard.rs` and `loosest.rs` of
-- ratekeeper-core's `algorithm` do, to the bit.

-- What is kept beside each counter: how much its quota holds (`max`); its guard; the bytes of the other
-- counter with the same (`others_`); until when that is kept (`ends`); and since when, while it is not known
-- how much its quota holds. If there are more than two quotas, also the bytes of the loosest of all, how much
-- that holds, how much more was used, and until when it is kept (`loosest_`).
local besides = {}
-- What was beside and no longer matters. It is dropped when anything is admitted; a denial changes nothing.
local forgotten = {}
local TWO, MORE, TWO_FORM = 255, 254, '<I4I4I4I7I7I4I7I4'
-- How many admissions under another quota a log remembers while it is not known how many matter.
local MOST_BESIDE = 1024

local function is_counter(value)
  local algorithm, _, _, from, wide = read_head(value)
  return algorithm and (algorithm ~= SLIDING_LOG or is_log(value, from, wide))
end

-- When a bucket is full.
local function whole_at(value)
  local _, _, _, from, wide = read_head(value)
  local full, parts = read_bucket(value, from, wide)
  return parts > 0 and full + 1 or full
end

-- Until when the loosest of more than two quotas matters.
local function loosest_until(b)
  if b.loosest_excess > 0 then return b.loosest_ends end
  return math.min(b.loosest_ends, whole_at(b.loosest))
end

local function is_several(value)
  local tag = byte(value, 1)
  return tag == TWO or tag == MORE
end

-- The first of several counters, and what is beside it. Nil if they are not counters.
local function open(value)
  if #value < 42 then return nil end
  local b, at = {}, nil
  local size
  size, b.max, b.others_max, b.ends, b.guard, b.parts, b.others_guard, b.others_parts, at = read(TWO_FORM, value, 2)
  if b.max == 0 or b.ends >= EXACT or b.guard >= EXACT or b.others_guard >= EXACT then return nil end
  if b.guard > 0 and b.parts >= b.max then return nil end
  b.since = 0
  if b.others_max == 0 then
    -- It has no guard. The time when it was put there is stored in its place.
    if b.others_guard > b.ends or b.others_parts > 0 then return nil end
    b.since, b.others_guard = b.others_guard, 0
  end
  if b.others_guard > 0 and b.others_parts >= b.others_max then return nil end
  local others_size = #value
  if byte(value, 1) == MORE then
    if #value < at + 18 then return nil end
    others_size, b.loosest_max, b.loosest_excess, b.loosest_ends, at = read('<I4I4I4I7', value, at)
    if b.loosest_ends >= EXACT or b.loosest_max == 0 then return nil end
    b.loosest = sub(value, at + size + others_size)
    local algorithm, units, micros = read_head(b.loosest)
    if algorithm ~= TOKEN_BUCKET then return nil end
    if span(b.loosest_max, units, micros) >= LONGEST then return nil end
  end
  local own = sub(value, at, at + size - 1)
  b.other = sub(value, at + size, at + size + others_size - 1)
  if #own ~= size or not is_counter(own) or not is_counter(b.other) then return nil end
  if b.loosest and #b.other ~= others_size then return nil end
  -- Only windows have guards.
  if b.guard > 0 and read_head(own) ~= FIXED_WINDOW then return nil end
  if b.others_guard > 0 and read_head(b.other) ~= FIXED_WINDOW then return nil end
  return own, b
end

-- The bytes of a counter with what is beside it, and for how long that matters.
local function close(k, value, left)
  local b = besides[k] or forgotten[k]
  if not b then return value, left end
  local guard = b.others_max == 0 and b.since or b.others_guard
  local head = write(TWO_FORM, #value, b.max, b.others_max, b.ends, b.guard, b.parts, guard, b.others_parts)
  left = math.max(left, b.ends - now)
  if not b.loosest then return char(TWO) .. head .. value .. b.other, left end
  head = char(MORE) .. head .. write('<I4I4I4I7', #b.other, b.loosest_max, b.loosest_excess, b.loosest_ends)
  return head .. value .. b.other .. b.loosest, math.max(left, loosest_until(b) - now)
end

local function is_basis(value, t)
  local algorithm, units, micros = read_head(value)
  if algorithm ~= t.algorithm then return false end
  if t.is_bucket then return units == t.units and micros == t.micros end
  return micros == t.period
end

-- Until when anything of a counter counts.
local function counts_until(value)
  local algorithm, _, micros, from, wide = read_head(value)
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    return whole_at(value)
  elseif algorithm == FIXED_WINDOW then
    local count = number(value, from + 7, #value - from - 6)
    return count > 0 and number(value, from, 7) + micros or 0
  elseif algorithm == SLIDING_WINDOW then
    local index, half = number(value, from, 6), (#value - from - 5) / 2
    if number(value, from + 6 + half, half) > 0 then return (index + 2) * micros end
    return number(value, from + 6, half) > 0 and (index + 1) * micros or 0
  end
  if #value < from + 4 then return 0 end
  return number(value, #value - wide - 6, 7) + micros
end

-- How long a quota of a counter's rate or period that holds `max` takes to be full again.
local function full_refill(value, max)
  local algorithm, units, micros = read_head(value)
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    local fill, parts = span(max, units, micros)
    return parts > 0 and fill + 1 or fill
  end
  return algorithm == SLIDING_WINDOW and 2 * micros or micros
end

local function others_used(b)
  local units = used(b.other)
  if b.others_max > 0 and units > b.others_max then return b.others_max end
  return units
end

-- A term with a cost, for a counter that is kept beside.
local function term_beside(value, max, cost)
  local algorithm, units, micros, from, wide = read_head(value)
  local t = { algorithm = algorithm, head = sub(value, 1, from - 1), apply = 0, max = max, cost = cost, wide = wide }
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    t.is_bucket, t.units, t.micros, t.grid = true, units, micros, 1e6
    t.cost, t.cost_parts = span(cost, units, micros)
    t.fill, t.fill_parts = span(max, units, micros)
  else
    t.period = micros
  end
  return t
end

-- The bytes of a counter without what no longer counts, which must not come back when the clock is set back.
local function moved_to_now(k, value)
  local o = k + #keys
  bring_plain(o, term_beside(value, 0, 0), value)
  return (value_of(o))
end

-- Remembers the bytes of a window that was read, unless the clock was set back: then it is treated as of now.
local function keep_as_read(k, t, value)
  local algorithm, _, _, from = read_head(value)
  if algorithm == FIXED_WINDOW then
    if number(value, from, 7) <= now then as_read[k] = value end
  elseif algorithm == SLIDING_WINDOW then
    if number(value, from, 6) <= floor(now / t.period) then as_read[k] = value end
  end
end

-- Makes the counter one of the term from now on, and puts its previous bytes, `value`, beside it if they may
-- still matter. `b`: what was beside until now.
local function put_beside(k, t, value, b)
  local new = { max = t.max, guard = 0, parts = 0, since = now }
  new.other, new.others_max, new.others_guard, new.others_parts = value, 0, 0, 0
  local back = false
  if b then
    new.others_max, new.others_guard, new.others_parts = b.max, b.guard, b.parts
    back = is_basis(b.other, t)
    if back and b.others_max == t.max then new.guard, new.parts = b.others_guard, b.others_parts end
    new.loosest, new.loosest_ends = b.loosest, b.loosest_ends
    new.loosest_max, new.loosest_excess = b.loosest_max, b.loosest_excess
  end
  new.ends = new.others_max == 0 and counts_until(value) or now + full_refill(value, new.others_max)
  if new.ends <= now and not (back and b.loosest) then
    if b and not back then
      b.max, b.guard, b.parts = t.max, 0, 0
      new = b
    else
      new = nil
    end
  end
  besides[k], forgotten[k], changed[k] = new, nil, true
end

-- Makes sure that a fixed window has a guard, as soon as both quotas are known.
local function set_guard(k, t)
  local b = besides[k]
  if not b or t.algorithm ~= FIXED_WINDOW or b.others_max == 0 or b.guard > 0 then return end
  local units, others = ys[k] + t.max * (xs[k] + t.period - now) / t.period, others_used(b)
  if units < others then units = others end
  local all, most = ceil(units * t.period), 2 * t.period
  local micros, parts = ceil(all / t.max), 0
  if all < EXACT then
    parts = all % t.max
    micros = (all - parts) / t.max
  end
  if micros >= most then micros, parts = most, 0 end
  b.guard, b.parts, changed[k], as_read[k] = now + micros, parts, true, nil
end

-- Whether a bucket is full only later than its quota takes at most, or takes to pay off all that it may owe.
-- It was then counted under a quota that holds more, or the clock was set back. The two cannot be told apart,
-- unless it is by more than any quota is likely to hold.
local function is_beyond(k, t)
  if not t.is_bucket then return false end
  local left = xs[k] - now
  if not is_debt(t, left, ys[k]) or left > 100000 * (t.fill + 1) then return false end
  local micros, parts = wait_of(k, t)
  return micros ~= left or parts ~= ys[k]
end

-- The guard of a window of this period, and whether it has changed. If it is full only later than it can be,
-- the clock was set back, and it is counted from now.
local function settled_guard(guard, parts, period)
  local left, most = guard - now, 2 * period
  if left > most or (left == most and parts > 0) then return now + most, 0, true end
  return guard, parts, false
end

-- The bytes of a counter. They change if the clock was set back: then it is counted from now.
local function settled(k, value, max)
  local algorithm, _, micros, from, wide = read_head(value)
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    local o, t = k + #keys, term_beside(value, max, 0)
    bring_plain(o, t, value)
    if not is_debt(t, xs[o] - now, ys[o]) then return value end
    local left, parts = wait_of(o, t)
    xs[o], ys[o] = now + left, parts
    return (value_of(o))
  end
  local ahead
  if algorithm == FIXED_WINDOW then
    ahead = number(value, from, 7) > now
  elseif algorithm == SLIDING_WINDOW then
    ahead = number(value, from, 6) > floor(now / micros)
  else
    ahead = #value >= from + 4 and number(value, #value - wide - 6, 7) > now
  end
  return ahead and moved_to_now(k, value) or value
end

-- Whether what is beside this counter no longer matters. If the clock was set back, everything is counted
-- from now.
local function is_over(k, b, value)
  local _, _, period = read_head(value)
  local guard, others_guard, other = false, false, b.other
  b.guard, b.parts, guard = settled_guard(b.guard, b.parts, period)
  if guard then changed[k] = true end
  if b.others_max > 0 then
    b.other = settled(k, other, b.others_max)
    local _, _, others_period = read_head(other)
    b.others_guard, b.others_parts, others_guard = settled_guard(b.others_guard, b.others_parts, others_period)
    if others_guard or b.other ~= other then changed[k] = true end
    -- If it ends later than that, the clock was set back.
    local ends = now + full_refill(b.other, b.others_max)
    if ends < b.ends then b.ends, changed[k] = ends, true end
  elseif b.since > now then
    b.ends, b.since, changed[k] = b.ends - (b.since - now), now, true
  end
  if b.loosest then
    local loosest = settled(k, b.loosest, b.loosest_max)
    if loosest ~= b.loosest then b.loosest, changed[k] = loosest, true end
    if loosest_until(b) <= now then b.loosest, changed[k] = nil, true end
  end
  return b.ends <= now and not b.loosest
end

-- The rate of a token bucket, in lowest terms.
local function in_lowest_terms(units, micros)
  local a, b = units, micros
  while b > 0 do a, b = b, a % b end
  return units / a, micros / a
end

-- The bytes of a token bucket of which `used_units` are used.
local function bucket_of(units, micros, max, used_units)
  local wide, parts = 1, units == 1 and 0 or width(units)
  while micros >= 256 ^ wide do wide = wide + 1 end
  local head = char(TOKEN_BUCKET + 5 * (wide - 1 + 7 * parts)) .. write('<I' .. wide, micros)
  if parts > 0 then head = head .. write('<I' .. parts, units) end
  local t = { algorithm = TOKEN_BUCKET, head = head, max = max, wide = parts, is_bucket = true, units = units,
    micros = micros, grid = 1e6 }
  t.fill, t.fill_parts = span(max, units, micros)
  -- An index that belongs to no counter.
  seed(0, t, math.min(used_units, max))
  owners[0] = t
  return (value_of(0))
end

-- The rate of a quota, and how much it passes at once: a window passes twice what it holds, around its edge.
local function looseness(algorithm, units, micros, max)
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then return units, micros, max end
  units, micros = in_lowest_terms(max, micros)
  if algorithm == SLIDING_LOG then return units, micros, max end
  return units, micros, math.min(2 * max, U32)
end

-- Makes the loosest as loose as a quota, if it is not. What is used stays used.
local function loosen(k, b, units, micros, most)
  local _, own_units, own_micros = read_head(b.loosest)
  local more, is_faster = math.max(most - b.loosest_max, 0), not at_most(units, own_micros, own_units, micros)
  if more == 0 and not is_faster then return end
  local known = math.min(b.loosest_excess, more)
  local units_used = math.min(used(b.loosest), b.loosest_max) + known
  b.loosest_excess, b.loosest_max, changed[k] = b.loosest_excess - known, b.loosest_max + more, true
  if not is_faster then units, micros = own_units, own_micros end
  if is_faster or known > 0 then b.loosest = bucket_of(units, micros, b.loosest_max, units_used) end
end

-- How much is used of a fixed window whose limit is known, including what it may have passed before its edge;
-- nil for any other counter.
local function used_twice(value, max)
  local algorithm, _, micros, from = read_head(value)
  if algorithm ~= FIXED_WINDOW or max == 0 then return nil end
  local start, count = read_fixed_window(value, from, micros, now)
  return count + max * (start + micros - now) / micros
end

-- How much longer it takes until nothing of a counter is left: a fixed window may have passed as much before
-- its edge.
local function edge_of(value)
  local algorithm, _, micros = read_head(value)
  return algorithm == FIXED_WINDOW and micros or 0
end

-- Starts to count what all quotas admit together, before one of those that are counted is dropped.
local function count_all(k, b, value)
  if b.loosest then return end
  local algorithm, rate, per = read_head(value)
  local units_used = used_twice(value, b.max) or (counts_until(value) > now and used(value) or 0)
  local others = used_twice(b.other, b.others_max) or others_used(b)
  if units_used < others then units_used = others end
  local units, micros, most = looseness(algorithm, rate, per, b.max)
  b.loosest_max, b.loosest_excess = most, math.max(math.min(ceil(units_used), U32) - most, 0)
  b.loosest, changed[k] = bucket_of(units, micros, b.loosest_max, units_used), true
  local others_end = b.others_max == 0 and b.ends or now + full_refill(b.other, b.others_max)
  b.loosest_ends = math.max(now + full_refill(value, b.max) + edge_of(value), others_end + edge_of(b.other))
  if b.others_max > 0 then
    algorithm, rate, per = read_head(b.other)
    loosen(k, b, looseness(algorithm, rate, per, b.others_max))
  end
end

-- Reads a counter under a quota that is none of those that are counted.
local function bring_changed(k, t, value, b)
  local old, _, period, from, wide = read_head(value)
  local counts = counts_until(value) > now
  if counts and not b and old == SLIDING_LOG and t.algorithm == SLIDING_LOG then
    -- The moments of a log mean the same, whatever the period; but entries that have left stay away.
    xs[k], logs[k], ys[k] = read_log(value, from, wide, math.min(period, t.period), now)
    logs[k], wides[k] = widen(logs[k], wide, t.wide)
    added[k] = 0
  else
    local units = counts and used(value) or 0
    local others = b and others_used(b) or 0
    if units < others then units = others end
    seed(k, t, math.min(units, t.max))
  end
  return put_beside(k, t, value, b)
end

-- Reads a counter under a term. If it was counted under another quota, that state is kept beside.
local function bring(k, t)
  local owner, b, value = owners[k], besides[k], nil
  if owner then
    if owner.head == t.head and not b and not is_beyond(k, t) then
      owners[k] = t
      if before[k] then needs[k] = math.max(needs[k], xs[k] + 1 - t.max) end
      return
    end
    -- An earlier request of this call had another quota.
    before[k] = nil
    local left
    value, left = value_of(k)
    if left <= 0 and not b then value = nil end
    owners[k] = t
  else
    value, owners[k] = values[k], t
    if value and is_several(value) then
      value, b = open(value)
      if not value then return foreign(k, t) end
      besides[k] = b
    end
  end
  as_read[k] = nil
  if b and is_over(k, b, value) then b, besides[k], forgotten[k] = nil, nil, b end
  if not value then return seed(k, t, 0) end
  local own = is_basis(value, t)
  if not own and not b and not is_counter(value) then return foreign(k, t) end
  if own and (not b or b.max == t.max or not is_basis(b.other, t)) then
    bring_plain(k, t, value, not owner and not b)
    if b and b.max ~= t.max then
      count_all(k, b, value)
      b.max, b.guard, b.parts, changed[k] = t.max, 0, 0, true
    else
      keep_as_read(k, t, value)
    end
    if not b and is_beyond(k, t) then
      put_beside(k, t, value, nil)
      local micros, parts = wait_of(k, t)
      xs[k], ys[k] = now + micros, parts
    end
  elseif b and is_basis(b.other, t) then
    value = settled(k, moved_to_now(k, value), b.max)
    bring_plain(k, t, b.other)
    keep_as_read(k, t, b.other)
    local is_another = b.others_max ~= t.max
    if b.others_max == 0 then is_another = is_beyond(k, t) or math.min(ceil(used(b.other)), U32) > t.max end
    if is_another then count_all(k, b, value) end
    put_beside(k, t, value, b)
  else
    value = moved_to_now(k, value)
    if b then
      value = settled(k, value, b.max)
      count_all(k, b, value)
    end
    bring_changed(k, t, value, b)
  end
  b = besides[k]
  if b and b.loosest then loosen(k, b, looseness(t.algorithm, t.units, t.micros or t.period, t.max)) end
  set_guard(k, t)
end

-- What is left of a guard with `cost` more units, at most what it holds; and whether it would be more.
local function guard_with(guard, parts, period, limit, cost)
  local left, most = guard - now, 2 * period
  if left < 0 then left, parts = 0, 0 end
  if left >= most then left, parts = most, 0 end
  local more, more_parts = span(cost, limit, period)
  left, parts = left + more, parts + more_parts
  if parts >= limit then left, parts = left + 1, parts - limit end
  if left > most or (left == most and parts > 0) then return most, 0, true end
  return left, parts, false
end

-- Drops this many units of a log, the oldest first.
local function drop_oldest(o, units)
  local entries, wide, at = logs[o], wides[o], 1
  xs[o] = xs[o] - math.min(units, xs[o])
  while units > 0 and at <= #entries do
    local cost = number(entries, at + 7, wide)
    if cost > units then
      entries = sub(entries, 1, at + 6) .. write('<I' .. wide, cost - units) .. sub(entries, at + 7 + wide)
      break
    end
    units, at = units - cost, at + 7 + wide
  end
  logs[o] = sub(entries, at)
end

-- Logs what was admitted under another quota, and no more than matters.
local function press_log(o, max, cost)
  local most = U32
  if max > 0 then cost, most = math.min(cost, max), max end
  drop_oldest(o, math.max(xs[o] + cost - most, 0))
  xs[o] = xs[o] + cost
  local last = 0
  local size = 7 + wides[o]
  if logs[o] ~= '' and number(logs[o], #logs[o] - size + 1, 7) == now then
    last = number(logs[o], #logs[o] - wides[o] + 1, wides[o])
    logs[o] = sub(logs[o], 1, #logs[o] - size)
  end
  logs[o], wides[o] = widen(logs[o], wides[o], math.max(wides[o], width(last + cost)))
  logs[o], ys[o] = logs[o] .. write('<I7I' .. wides[o], now, last + cost), now
  if max == 0 and #logs[o] > MOST_BESIDE * (7 + wides[o]) then drop_oldest(o, number(logs[o], 8, wides[o])) end
end

-- The bytes of a counter kept beside one under which `cost` units were admitted. `max`: how much its quota
-- holds.
local function pressed(k, value, max, cost)
  local o = k + #keys
  local other = term_beside(value, max, cost)
  bring_plain(o, other, value)
  if other.is_bucket then
    local micros, parts = xs[o] - now, ys[o]
    if micros < 0 then micros, parts = 0, 0 end
    local owes = zs[o] and (micros > 0 or parts > 0)
    local most, most_parts = LONGEST, 0
    if max > 0 then
      most, most_parts = other.fill, other.fill_parts
      if is_debt(other, micros, parts) then most, most_parts = micros, parts end
    end
    micros, parts = micros + other.cost, parts + other.cost_parts
    if parts >= other.units then micros, parts = micros + 1, parts - other.units end
    if micros > most or (micros == most and parts > most_parts) then micros, parts = most, most_parts end
    xs[o], ys[o], zs[o] = now + micros, parts, owes
  elseif other.algorithm == FIXED_WINDOW then
    ys[o] = math.min(ys[o] + cost, U32)
  elseif other.algorithm == SLIDING_WINDOW then
    zs[o] = math.min(zs[o] + cost, U32)
  else
    press_log(o, max, cost)
  end
  return (value_of(o)), other
end

-- How long it takes for everything that a term's quota passes at once to come back.
local function refill_of(t)
  if t.is_bucket then return t.fill_parts > 0 and t.fill + 1 or t.fill end
  return t.algorithm == SLIDING_LOG and t.period or 2 * t.period
end

-- Counts what was admitted under a term, `cost` units, for the other quotas and for guards.
local function press(k, t, cost)
  local b = besides[k]
  if not b or cost == 0 then return end
  if b.guard > 0 then
    local left, parts = guard_with(b.guard, b.parts, t.period, t.max, cost)
    b.guard, b.parts = now + left, parts
  end
  local other
  b.other, other = pressed(k, b.other, b.others_max, cost)
  if b.others_guard > 0 then
    local left, parts = guard_with(b.others_guard, b.others_parts, other.period, b.others_max, cost)
    b.others_guard, b.others_parts = now + left, parts
  end
  if b.loosest then
    b.loosest = pressed(k, b.loosest, b.loosest_max, cost)
    b.loosest_ends = math.max(b.loosest_ends, now + refill_of(t))
  end
end
