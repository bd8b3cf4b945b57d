-- Decides requests: each is charged to all of its counters or to none.
--
-- KEYS: the counters. ARGV[1]: the question, packed by `call.rs`. Returns, packed: the number of the
-- question, which identifies its answer; the time; whether that is past the deadline, in which case nothing
-- was done; how many requests were admitted; and what each counter was before, from which the caller works
-- out which requests those are.

local read, write, call, concat = struct.unpack, struct.pack, redis.call, table.concat
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local byte, char, sub, rep = string.byte, string.char, string.sub, string.rep

local ask, keys = ARGV[1], KEYS
local deadline, now, id, run_count, held_count, held_requests, term_count, group_count, spare_count, at =
  read('<ddI4HHHHHH', ask)
local given = now > 0
if not given then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if deadline > 0 and now > deadline then return write('<I4dB', id, now, 1) end

-- The algorithms. NEVER stands for an invalid quota, which admits only charges that cost nothing.
local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, LEAKY_BUCKET, NEVER = 0, 1, 2, 3, 4, 5
local EXACT = 9007199254740992
-- Logs that may be long are read where they are charged, and only the parts that are needed: Lua looks at
-- every byte of each string that it copies.
local values, apart = {}, nil
local scan = at
for _ = 1, run_count do
  local algorithm, first, last, with_times, term_at
  algorithm, first, last, with_times, term_at, scan = read('<BHHBI4', ask, scan)
  if with_times > 0 then scan = scan + 2 * (last - first + 1) end
  if algorithm == SLIDING_LOG then
    local _, _, _, limit = read('<Bc0Bc0dd', ask, term_at + 3)
    if limit * 8 > LONG then
      apart = apart or {}
      for k = first, last do apart[k] = true end
    end
  end
end
if not apart and #keys <= 4096 then
  values = call('MGET', unpack(keys))
else
  local from = 1
  while from <= #keys do
    local to = from
    -- Lua cannot pass more arguments at once.
    while to < #keys and to < from + 4095 and not (apart and (apart[to] or apart[to + 1])) do to = to + 1 end
    if not (apart and apart[from]) then
      local part = call('MGET', unpack(keys, from, to))
      for i = 1, #part do values[from + i - 1] = part[i] end
    end
    from = to + 1
  end
end

-- A counter is kept until the millisecond in which it ceases to matter. The expiry is absolute, because the
-- script may have begun some time before it reads the time. If the time was passed to the script, it is
-- unknown how fast that clock runs.
local AT, origin = 'PXAT', now
if given then AT, origin = 'PX', 3600001000 end

-- How many requests were admitted; the size of the counters if all have the same, otherwise 0; and the
-- charges that need more than the common path.
local admitted, size_of_all, rest = 0, nil, nil
-- What to write once everything is known to fit, and the expiries.
local news, lives, held, held_first, held_last = nil, nil, true, nil, nil

-- Runs: each counter from the first to the last is charged one term a number of times, by requests that
-- charge nothing else, and by no others. This is the common path, in one piece, as calls and tables are
-- expensive: the counter exists, was counted under the same quota, and the clock was not set back.
--
-- Held runs, which come last, are those of requests with several charges, one run for each. Usually all of
-- them fit, and are written at the end. If any does not, none is written, and the spare groups are decided
-- one after the other.
for r = 1, run_count + held_count do
  local algorithm, first, last, with_times, term_at
  algorithm, first, last, with_times, term_at, at = read('<BHHBI4', ask, at)
  -- How many times, if not once: two bytes for each counter.
  local times, times_at = 1, at - 2 * first
  if with_times > 0 then at = at + 2 * (last - first + 1) end
  local hold = r > run_count
  if hold then
    if not news then news, lives, held_first = {}, {}, first end
    held_last = last
  end
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    -- A bucket is kept until the second multiple of `grid` after it is full. Extending the expiry of a key
    -- takes Redis longer than changing its value, and so it is done for one charge in eight. The grid depends
    -- on the rate alone, as everything that writes a bucket must use the same one. It is no finer than a
    -- second, as a fast bucket is full again at once and every charge would extend its expiry. And it is not
    -- so wide that a slow bucket is kept for days.
    local form, head, mark, _, cost, cost_parts, fill, fill_parts, units, micros_of_rate, wide =
      read('<Bc0Bc0ddddddddB', ask, term_at + 3)
    if mark < 0 then mark = head end
    if wide == 0 then fill_parts = EXACT end
    local size, limit = #head + 7 + wide, now + fill
    local grid = min(max(8 * micros_of_rate / units, 1e6), 3.6e9)
    -- What costs nothing takes nothing, and nothing is kept of it.
    local free, life, life_of = cost + cost_parts == 0, nil, nil
    size_of_all = size_of_all or size
    if size_of_all ~= size then size_of_all = 0 end
    -- Usually each counter is charged once, the cost has no fraction of a microsecond, and it fits. Then
    -- there is little to check, and only the moment has to be written. All others are left for the loop
    -- below.
    local others, count = nil, last - first + 1
    if wide == 0 and with_times == 0 and not free then
      count = 0
      local at_moment = sub(form, 3, -3)
      for k = first, last do
        local value = values[k]
        local own, new, line
        if value and #value == size then
          own, new = read(form, value)
          line = new - new % grid + grid
          if new < now then new = now end
          new = new + cost
        end
        if own ~= mark or new > limit then
          others = others or {}
          count = count + 1
          others[count] = k
        elseif new < line then
          if hold then
            news[k] = write(form, mark, new)
          else
            call('SETRANGE', keys[k], at_moment, write('<I7', new))
          end
        else
          line = new - new % grid
          if line ~= life_of then
            life_of, life = line, ceil((origin + line + 2 * grid - now) / 1000) .. ''
          end
          if hold then
            news[k], lives[k] = write(form, mark, new), life
          else
            call('SET', keys[k], write(form, mark, new), AT, life)
          end
        end
      end
      if not hold then admitted = admitted + last - first + 1 - count end
    end
    for i = 1, count do
      local k = others and others[i] or first + i - 1
      local value = values[k]
      -- When the bucket is full, and how far that may move without extending the key's expiry.
      local full, parts, line, good = now, 0, 0, true
      if not value then
        size_of_all = 0
      elseif #value == size then
        local own
        own, full, parts = read(form, value)
        good = own == mark and (wide == 0 or parts < units)
        line = full - full % grid + grid
        if full < now then full, parts = now, 0 end
      else
        good = false
      end
      if with_times > 0 then times = read('<H', ask, times_at + 2 * k) end
      local passed, new, new_parts = times, full + times * cost, parts
      if wide > 0 then
        new_parts = parts + times * cost_parts
        if new_parts >= units then
          local whole = floor(new_parts / units)
          new, new_parts = new + whole, new_parts - whole * units
        end
      end
      if not good or new > limit or (new == limit and new_parts > fill_parts) then
        passed = 0
        if hold then
          held = false
        elseif not good or full > limit or (full == limit and parts > fill_parts) then
          rest = rest or {}
          rest[#rest + 1] = { k, term_at, times }
        elseif times > 1 then
          -- As many as fit.
          while true do
            new, new_parts = full + cost, parts
            if wide > 0 then new_parts = parts + cost_parts end
            if wide > 0 and new_parts >= units then new, new_parts = new + 1, new_parts - units end
            if new > limit or (new == limit and new_parts > fill_parts) then break end
            passed, full, parts = passed + 1, new, new_parts
          end
          new, new_parts = full, parts
        end
      end
      if passed > 0 then
        if not hold then admitted = admitted + passed end
        if not free then
          local text
          if new >= line then
            line = new - new % grid
            if line ~= life_of then
              life_of, life = line, ceil((origin + line + 2 * grid - now) / 1000) .. ''
            end
            text = life
          end
          if hold then
            news[k], lives[k] = write(form, mark, new, new_parts), text
          elseif text then
            call('SET', keys[k], write(form, mark, new, new_parts), AT, text)
          else
            call('SETRANGE', keys[k], '0', write(form, mark, new, new_parts))
          end
        end
      end
    end
  elseif algorithm == FIXED_WINDOW then
    local form, head, mark, limit, cost, period = read('<Bc0Bc0dddd', ask, term_at + 3)
    if mark < 0 then mark = head end
    local start = now - now % period
    local base = #head + 7
    local life
    local form_wide, full_form = 0, nil
    for k = first, last do
      local value = values[k]
      local count, good, own, began, old_wide = 0, true, nil, nil, 0
      if value then
        old_wide = #value - base
        size_of_all = size_of_all or #value
        if size_of_all ~= #value then size_of_all = 0 end
        good = false
        if old_wide >= 1 and old_wide <= 4 then
          if old_wide ~= form_wide then form_wide, full_form = old_wide, form .. old_wide end
          own, began, count = read(full_form, value)
          -- Even a charge that costs nothing drops a window that is over, which is left to the general path.
          good = own == mark and (began == start or (began + period <= now and cost > 0))
          if began ~= start then count = 0 end
        end
      else
        size_of_all = 0
      end
      if with_times > 0 then times = read('<H', ask, times_at + 2 * k) end
      if good then
        local passed = times
        if count + times * cost > limit and cost > 0 then
          passed = count < limit and floor((limit - count) / cost) or 0
          if hold then held = false end
        end
        if passed > 0 then
          count = count + passed * cost
          local wide = 4
          if count < 256 then wide = 1 elseif count < 65536 then wide = 2 elseif count < 16777216 then wide = 3 end
          if wide ~= form_wide then form_wide, full_form = wide, form .. wide end
          local new = write(full_form, mark, start, count)
          local text
          if began ~= start or wide < old_wide then
            life = life or ceil((origin + start + period - now) / 1000) .. ''
            text = life
          end
          if cost == 0 then
            -- Nothing was taken, and nothing is kept.
          elseif hold then
            news[k], lives[k] = new, text
          elseif text then
            call('SET', keys[k], new, AT, text)
          else
            call('SETRANGE', keys[k], '0', new)
          end
          if not hold then admitted = admitted + passed end
        end
      elseif hold then
        held = false
      else
        rest = rest or {}
        rest[#rest + 1] = { k, term_at, times }
      end
    end
  elseif algorithm == SLIDING_WINDOW then
    local form, head, mark, limit, cost, period = read('<Bc0Bc0dddd', ask, term_at + 3)
    if mark < 0 then mark = head end
    local index = floor(now / period)
    local left = (index + 1) * period - now
    local base = #head + 6
    local life
    local form_wide, full_form = 0, nil
    for k = first, last do
      local value = values[k]
      local previous, current, good, own, number, same, old_wide = 0, 0, true, nil, nil, false, 0
      if value then
        old_wide = (#value - base) / 2
        size_of_all = size_of_all or #value
        if size_of_all ~= #value then size_of_all = 0 end
        good = false
        if old_wide == 1 or old_wide == 2 or old_wide == 3 or old_wide == 4 then
          if old_wide ~= form_wide then form_wide, full_form = old_wide, form .. old_wide .. 'I' .. old_wide end
          own, number, previous, current = read(full_form, value)
          -- Kept for a window longer if anything was counted in this one.
          same = number == index and current > 0
          -- A charge that costs nothing moves windows on, too, which is left to the general path.
          good = own == mark and (number == index or (number < index and cost > 0))
          if number + 1 == index then
            previous, current = current, 0
          elseif number < index then
            previous, current = 0, 0
          end
        end
      else
        size_of_all = 0
      end
      if with_times > 0 then times = read('<H', ask, times_at + 2 * k) end
      local passed, room = times, limit - current - cost
      -- Larger products are not exact in floating point, and are left to the general path.
      if good and (previous == 0 or (previous * left < EXACT and room * period < EXACT)) then
        room = room - (times - 1) * cost
        if cost > 0 and (room < 0 or previous * left > room * period) then
          passed, room = 0, limit - current - cost
          while passed < times and room >= 0 and previous * left <= room * period do
            passed, room = passed + 1, room - cost
          end
          if hold then held = false end
        end
        if passed > 0 then
          current = current + passed * cost
          local most, wide = current > previous and current or previous, 4
          if most < 256 then wide = 1 elseif most < 65536 then wide = 2 elseif most < 16777216 then wide = 3 end
          if wide ~= form_wide then form_wide, full_form = wide, form .. wide .. 'I' .. wide end
          local new = write(full_form, mark, index, previous, current)
          local text
          if not same or wide ~= old_wide then
            life = life or ceil((origin + left + period) / 1000) .. ''
            text = life
          end
          if cost == 0 then
            -- Nothing was taken, and nothing is kept.
          elseif hold then
            news[k], lives[k] = new, text
          elseif text then
            call('SET', keys[k], new, AT, text)
          else
            call('SETRANGE', keys[k], '0', new)
          end
          if not hold then admitted = admitted + passed end
        end
      elseif hold then
        held = false
      else
        rest = rest or {}
        rest[#rest + 1] = { k, term_at, times }
      end
    end
  elseif hold then
    held = false
  elseif algorithm == SLIDING_LOG then
    local _, head, limit, cost, period, wide = nil, nil, nil, nil, nil, nil
    _, head, _, limit, cost, period, wide = read('<Bc0Bc0ddddB', ask, term_at + 3)
    local form, size, base, largest = '<I7I' .. wide, 7 + wide, #head + 5, 256 ^ wide - 1
    local life = ceil((origin + period) / 1000) .. ''
    size_of_all = 0
    for k = first, last do
      local key, value, is_long = keys[k], values[k], false
      if apart and apart[k] then
        -- A key that is not a string is not ours.
        value = redis.pcall('GETRANGE', key, 0, LONG)
        if type(value) ~= 'string' or value == '' then value = false end
        is_long = value and #value > LONG
        values[k] = value
      end
      if with_times > 0 then times = read('<H', ask, times_at + 2 * k) end
      local units, good = times * cost, false
      -- Positions, counted from zero: the first entry that may count, the first place without an entry, and
      -- the end.
      local oldest, free, slots = 0, 0, 0
      if value and sub(value, 1, #head) == head then
        slots = ((is_long and call('STRLEN', key) or #value) - base + 1) / size
        free = slots
        if is_long and slots % 1 == 0 then oldest, free = places_in_log(call('GETRANGE', key, -size, -1), slots) end
      end
      if not value then
        good = cost > 0 and units <= limit
        if good then call('SET', key, head .. write('<I4' .. sub(form, 2), units, now, units), AT, life) end
      elseif cost > 0 and free > oldest and slots % 1 == 0 then
        local function entry(slot)
          local from = base + slot * size
          if not is_long then return read(form, value, from) end
          return read(form, call('GETRANGE', key, from - 1, from + size - 2))
        end
        local newest, latest = entry(free - 1)
        if newest < now and newest + period > now then
          local left, live = oldest, read('<I4', value, base - 4)
          local moment, units_of = entry(oldest)
          while moment + period <= now do
            live, oldest = live - units_of, oldest + 1
            moment, units_of = entry(oldest)
          end
          local count = free - oldest
          -- The sum of all costs cannot exceed what the entries can hold, nor be less than the costs that
          -- were seen. Otherwise it is not a log.
          good = moment <= newest and live + units <= limit and live <= count * largest
            and live >= (count > 1 and units_of + latest or units_of)
          if good then
            local new, total = write(form, now, units), write('<I4', live + units)
            if is_long and free + 1 < slots and 8 * oldest <= slots then
              if oldest > left then call('SETRANGE', key, base + left * size - 1, rep('\0', (oldest - left) * size)) end
              call('SETRANGE', key, base + free * size - 1, new)
              call('SETRANGE', key, base + (slots - 1) * size - 1, log_places(oldest, free + 1, size))
              call('SETRANGE', key, #head, total)
              call(given and 'PEXPIRE' or 'PEXPIREAT', key, life)
            else
              local entries = base + oldest * size
              if is_long then
                entries = call('GETRANGE', key, entries - 1, base + free * size - 2)
              else
                entries = sub(value, entries)
              end
              local news = head .. total .. entries .. new
              call('SET', key, news .. room_for_log(news, count + 1, size), AT, life)
            end
            -- What the answers depend on: the oldest entry, and the sum of the others in place of the newest.
            local told = head .. write('<I4', live) .. write(form, moment, units_of)
            live = live - units_of
            while live > 0 do
              told = told .. write(form, newest, min(live, largest))
              live = live - largest
            end
            values[k] = told
          end
        end
      end
      if good then
        admitted = admitted + times
      else
        if is_long then values[k] = call('GET', key) end
        rest = rest or {}
        rest[#rest + 1] = { k, term_at, times }
      end
    end
  else
    rest = rest or {}
    for k = first, last do
      if with_times > 0 then times = read('<H', ask, times_at + 2 * k) end
      rest[#rest + 1] = { k, term_at, times }
    end
  end
end

if held_count > 0 and held then
  admitted = admitted + held_requests
  for k = held_first, held_last do
    local new = news[k]
    if not new then
      -- Nothing was taken.
    elseif lives[k] then
      call('SET', keys[k], new, AT, lives[k])
    else
      call('SETRANGE', keys[k], '0', new)
    end
  end
end

local is_peek = run_count + held_count + group_count == 0
local simple = held and not rest and not is_peek and group_count == 0
if simple and size_of_all and size_of_all > 0 then
  return write('<I4dBI4B', id, now, 0, admitted, size_of_all) .. concat(values)
end

local function answer()
  local sizes = {}
  for k = 1, #keys do
    local value = values[k] or ''
    local size = #value
    values[k] = value
    sizes[k] = size < 255 and char(size) or char(255) .. write('<I4', size)
  end
  return concat({ write('<I4dBI4B', id, now, 0, admitted, 0), concat(sizes), concat(values) })
end

if simple then return answer() end

-- From here on, the uncommon cases. First, all terms: quotas, each with a cost.
local terms, term_of = {}, {}
for i = 1, term_count do
  local start, algorithm, apply, _, head, limit, cost = at, nil, nil, nil, nil, nil, nil
  algorithm, apply, _, head, _, limit, cost, at = read('<BHBc0Bc0ddd', ask, at)
  local t = { algorithm = algorithm, head = head, apply = apply, max = limit, cost = cost }
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    t.is_bucket = true
    t.cost_parts, t.fill, t.fill_parts, t.units, t.micros, t.wide, at = read('<dddddB', ask, at)
    t.grid = min(max(8 * t.micros / t.units, 1e6), 3.6e9)
  elseif algorithm ~= NEVER then
    t.period, t.wide, at = read('<dB', ask, at)
  end
  terms[i], term_of[start] = t, t
end

local function moment(left) return ceil((origin + left) / 1000) .. '' end
