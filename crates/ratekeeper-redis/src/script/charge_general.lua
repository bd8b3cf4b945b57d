-- Whether a term fits into a counter by itself; for buckets, also how long it would then take to be full.
local function fits_alone(k, t)
  if t.is_bucket then
    local micros, parts = wait_of(k, t)
    if t.cost + t.cost_parts == 0 then return true, micros, parts end
    micros, parts = micros + t.cost, parts + t.cost_parts
    if parts >= t.units then micros, parts = micros + 1, parts - t.units end
    return not is_debt(t, micros, parts), micros, parts
  end
  local algorithm = t.algorithm
  -- Zero always fits, even where a debit or a smaller limit has left more than is allowed.
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

-- How many units a term costs.
local function units_of(t)
  if not t.is_bucket then return t.cost end
  return floor((t.cost * t.units + t.cost_parts) / t.micros + 0.5)
end

-- Whether this many units fit into a counter that is kept beside.
local function fits_beside(k, value, max, cost)
  if cost > max then return false end
  local o, other = k + #keys, term_beside(value, max, cost)
  bring_plain(o, other, value)
  return (fits_alone(o, other))
end

-- Whether a term fits into a counter. If that is a fixed window with a guard, it has to fit into the guard as
-- well, or into the other counter. If there are more than two quotas, it has to fit into the loosest of them,
-- too.
local function fits(k, t)
  local fit, micros, parts = fits_alone(k, t)
  local b = besides[k]
  if not fit or not b or t.cost + (t.cost_parts or 0) == 0 then return fit, micros, parts end
  if b.guard > 0 then
    local _, _, more = guard_with(b.guard, b.parts, t.period, t.max, t.cost)
    if more and not fits_beside(k, b.other, b.others_max, t.cost) then return false end
  end
  if b.loosest and not fits_beside(k, b.loosest, b.loosest_max, units_of(t)) then return false end
  return true, micros, parts
end

-- Charges a term that fits.
local function take(k, t, micros, parts)
  if t.algorithm == NEVER then return end
  if t.apply > 0 then
    -- An earlier charge of the same request was part of what had to fit.
    t = terms[t.apply]
    bring(k, t)
    local _
    _, micros, parts = fits(k, t)
  end
  if t.is_bucket then
    xs[k], ys[k], zs[k] = now + micros, parts, is_debt(t, micros, parts)
  elseif t.algorithm == FIXED_WINDOW then
    ys[k] = ys[k] + t.cost
  elseif t.algorithm == SLIDING_WINDOW then
    zs[k] = zs[k] + t.cost
  else
    xs[k], added[k] = xs[k] + t.cost, added[k] + t.cost
  end
  dirty[k], forgotten[k], as_read[k] = true, nil, nil
  if besides[k] then press(k, t, units_of(t)) end
end

-- Remembers that the quota changed or the clock was set back, although the request was denied: the answer is
-- true only then.
local function settle(k, t)
  if t.algorithm == NEVER then return end
  bring(k, t)
  if t.is_bucket then
    if is_debt(t, xs[k] - now, ys[k]) then
      local micros, parts = wait_of(k, t)
      if now + micros ~= xs[k] or parts ~= ys[k] then xs[k], ys[k], changed[k] = now + micros, parts, true end
    end
  elseif t.algorithm == SLIDING_LOG then
    needs[k] = math.max(needs[k] or 0, xs[k] + t.cost - t.max)
  end
  if changed[k] then dirty[k] = true end
end

-- Charges one term to one counter up to `times` times, as often as it fits.
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

-- Everything that is known of a counter.
local of_counters = { values, owners, xs, ys, zs, changed, dirty, logs, wides, added, before, needs, as_read, forgotten }

local function copy_of(k)
  local copy, b = {}, besides[k]
  for i = 1, #of_counters do copy[i] = of_counters[i][k] end
  if b then
    copy.beside = {}
    for name, value in pairs(b) do copy.beside[name] = value end
  end
  return copy
end

local function put_back(k, copy)
  for i = 1, #of_counters do of_counters[i][k] = copy[i] end
  besides[k] = copy.beside
end

for _, charge in ipairs(rest or {}) do
  admitted = admitted + charge_alone(charge[1], term_of[charge[2]], charge[3])
end

-- Spare groups come after the others, and were decided already if they were held.
for _ = 1, held and group_count or group_count + spare_count do
  local times, n, k, i
  times, n, k, i, at = read('<HHHH', ask, at)
  local passed = 0
  if n == 1 then
    passed = charge_alone(k, terms[i], times)
  else
    local ks, ts, micros, parts = { k }, { terms[i] }, {}, {}
    for j = 2, n do
      ks[j], i, at = read('<HH', ask, at)
      ts[j] = terms[i]
    end
    -- Whether a counter is charged under several quotas: then what one of them has found does not hold for
    -- the next.
    local seen, several = {}, false
    for j = 1, n do
      local t, other = ts[j], seen[ks[j]]
      several = several or (other and (other.head ~= t.head or other.max ~= t.max))
      seen[ks[j]] = t
    end
    for _ = 1, times do
      local all = true
      for j = 1, n do
        local key, t = ks[j], ts[j]
        if t.algorithm == NEVER then
          all = all and t.cost == 0
        else
          local as_it_was = several and copy_of(key)
          if owners[key] ~= t then bring(key, t) end
          local fit
          fit, micros[j], parts[j] = fits(key, t)
          all = all and fit
          if several then put_back(key, as_it_was) end
        end
      end
      if not all then
        for j = 1, n do settle(ks[j], ts[j]) end
        break
      end
      for j = 1, n do
        local key, t = ks[j], ts[j]
        if several and t.algorithm ~= NEVER then
          -- Under another quota the counter is a different one, and what it took under the first may leave no
          -- room for this.
          if t.apply > 0 then t = terms[t.apply] end
          bring(key, t)
          local fit
          fit, micros[j], parts[j] = fits(key, t)
          all = all and fit
          if fit then take(key, t, micros[j], parts[j]) else settle(key, t) end
        else
          take(key, t, micros[j], parts[j])
        end
      end
      if all then passed = passed + 1 end
    end
  end
  admitted = admitted + passed
end

-- What the answers depend on of a log: the oldest entries, and the sum of the others in place of the newest.
local function summary(k)
  local t, total, entries, newest = unpack(before[k])
  local wide, need, from = t.wide, needs[k], 1
  local largest, rest = 256 ^ wide - 1, total
  local last = 0
  while from <= #entries and (from == 1 or need > 0) do
    local moment, cost = number(entries, from, 7), number(entries, from + 7, wide)
    -- Only a value that is not a log is out of order. Then only the newest entry is returned for the rest.
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
    local value, left = close(k, value_of(k))
    if left > 0 then call('SET', keys[k], with_room(value), AT, moment(left)) else call('DEL', keys[k]) end
  end
  if before[k] then
    values[k] = summary(k)
  elseif is_peek and values[k] and not read_head(values[k]) then
    if not is_several(values[k]) or not open(values[k]) then values[k] = false end
  end
end

return answer()
