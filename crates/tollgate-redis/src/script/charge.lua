-- Decides requests: each is charged to all of its counters or to none.
--
-- KEYS: the counters. ARGV[1]: what is asked, packed by `call.rs`. Returns, packed: the number of the question, by
-- which its answer is told from others; the time; whether that is past the deadline, in which case nothing was done;
-- for each group of equal requests how many were admitted; for each counter what it was before.

local read, write, concat, ceil, frexp = struct.unpack, struct.pack, table.concat, math.ceil, math.frexp
local call, char = redis.call, string.char

local ask = ARGV[1]
local deadline, now, id, term_count, run_count, group_count, at = read('<ddI4HHH', ask)
local given = now > 0
if not given then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if deadline > 0 and now > deadline then return write('<I4dB', id, now, 1) end

local values = call('MGET', unpack(KEYS))

-- The algorithms. NEVER is that of a quota that makes no sense, and admits nothing but what costs nothing.
local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, LEAKY_BUCKET, NEVER = 0, 1, 2, 3, 4, 5
local EXACT = 9007199254740992

-- A term is a quota with a cost. (Made with all fields at once: a table that grows is dear.)
--
-- A bucket is kept until the second multiple of `grid` after it is whole: to put a later end to a key takes Redis
-- longer than to change it, and so it is done for one charge in four. The grid depends on the rate alone, as all who
-- write a bucket must mean the same. It is not finer than what Redis counts in, and not so wide that a slow bucket
-- is kept for days.
local terms = {}
for i = 1, term_count do
  local algorithm, head, form, apply, max, cost
  algorithm, head, form, apply, max, cost, at = read('<BBc0Bc0Hdd', ask, at)
  if algorithm == TOKEN_BUCKET or algorithm == LEAKY_BUCKET then
    local cost_parts, fill, fill_parts, units, micros, wide
    cost_parts, fill, fill_parts, units, micros, wide, at = read('<dddddB', ask, at)
    terms[i] = {
      algorithm = algorithm, head = head, form = form, apply = apply, max = max, cost = cost, is_bucket = true,
      cost_parts = cost_parts, fill = fill, fill_parts = fill_parts, units = units, micros = micros, wide = wide,
      grid = math.min(math.max(4 * micros / units, 1000), 3.6e9),
    }
  elseif algorithm ~= NEVER then
    local period, wide
    period, wide, at = read('<dB', ask, at)
    terms[i] = {
      algorithm = algorithm, head = head, form = form, apply = apply, max = max, cost = cost, period = period,
      wide = wide,
    }
  else
    terms[i] = { algorithm = algorithm, head = head, apply = apply, max = max, cost = cost }
  end
end

-- For how long to keep a counter that matters for so many microseconds: in whole milliseconds since the one that the
-- script began in, as text, of which the same is often wanted again. (Of a time that was handed to the script, nobody
-- knows how fast it goes.)
local texts = {}
local function millis(left)
  local n = ceil(left / 1000) + 1
  if given then n = n + 3600000 end
  local text = texts[n]
  if not text then
    text = string.format('%.0f', n)
    texts[n] = text
  end
  return text
end

-- The same for what has to be there to the last: the millisecond in which it ends, as the script may have begun some
-- time before it was told the time.
local function moment(left)
  return given and millis(left) or string.format('%.0f', ceil((now + left) / 1000))
end
local AT = given and 'PX' or 'PXAT'

-- Of each counter, what to answer, and how long that is; of each group, how many were admitted.
local olds, sizes, admitted, asked = {}, {}, {}, 0
-- What needs more than the common way.
local rest = {}
local NONE, ONE = char(0), char(1)

-- Runs: each counter from the first to the last is charged one term by one request, and by no other. Here is the common
-- way, in one piece, as calls are dear: the counter is there, was counted under the same quota, and the clock was not
-- set back.
for _ = 1, run_count do
  local first, last, i
  first, last, i, at = read('<HHH', ask, at)
  local t = terms[i]
  local algorithm, head, cost, max = t.algorithm, t.head, t.cost, t.max
  if t.is_bucket then
    local wide, fill, fill_parts, cost_parts, units = t.wide, t.fill, t.fill_parts, t.cost_parts, t.units
    local grid = t.grid
    local form = t.form
    local size = #head + 7 + wide
    local size_text = char(size)
    for k = first, last do
      asked = asked + 1
      local value = values[k]
      local micros, parts, good, line = 0, 0, true, nil
      if value then
        if #value == size then
          local own
          own, micros, parts = read(form, value)
          if wide == 0 then parts = 0 end
          line = micros - micros % grid
          micros = micros - now
          if micros < 0 then micros, parts = 0, 0 end
          good = own == head and parts < units and (micros < fill or (micros == fill and parts <= fill_parts))
        else
          good = false
        end
      end
      if good then
        micros, parts = micros + cost, parts + cost_parts
        if parts >= units then micros, parts = micros + 1, parts - units end
        if micros < fill or (micros == fill and parts <= fill_parts) then
          local full = now + micros
          local new = full - full % grid
          if cost + cost_parts == 0 then
            -- Nothing was taken, and nothing is to be kept.
          elseif new == line then
            call('SET', KEYS[k], write(form, head, full, parts), 'KEEPTTL')
          else
            call('PSETEX', KEYS[k], millis(new + 2 * grid - now), write(form, head, full, parts))
          end
          admitted[asked] = ONE
        else
          admitted[asked] = NONE
        end
        if value then
          olds[k], sizes[k] = value, size_text
        else
          olds[k], sizes[k] = '', NONE
        end
      else
        admitted[asked] = NONE
        rest[#rest + 1] = { asked, k, t }
      end
    end
  elseif algorithm == FIXED_WINDOW then
    local period = t.period
    local start = now - now % period
    local size = #head + 7
    local form = t.form
    local forms = { form .. '1', form .. '2', form .. '3', form .. '4' }
    local until_end = moment(start + period - now)
    for k = first, last do
      asked = asked + 1
      local value = values[k]
      local count, good, own, began = 0, true, nil, nil
      if value then
        local form = forms[#value - size]
        good = false
        if form then
          own, began, count = read(form, value)
          -- What costs nothing leaves nothing of a window that is over.
          good = own == head and (began == start or (began + period <= now and cost > 0))
          if began ~= start then count = 0 end
        end
      end
      if good then
        count = count + cost
        if count <= max or cost == 0 then
          local wide = 4
          if count < 256 then wide = 1 elseif count < 65536 then wide = 2 elseif count < 16777216 then wide = 3 end
          local new = write(forms[wide], head, start, count)
          if began == start then
            call('SET', KEYS[k], new, 'KEEPTTL')
          elseif cost > 0 then
            call('SET', KEYS[k], new, AT, until_end)
          end
          admitted[asked] = ONE
        else
          admitted[asked] = NONE
        end
        olds[k] = value or ''
        sizes[k] = value and char(#value) or NONE
      else
        admitted[asked] = NONE
        rest[#rest + 1] = { asked, k, t }
      end
    end
  elseif algorithm == SLIDING_WINDOW then
    local period = t.period
    local index = math.floor(now / period)
    local left = (index + 1) * period - now
    local size = #head + 6
    local form = t.form
    local forms = { nil, form .. '1I1', nil, form .. '2I2', nil, form .. '3I3', nil, form .. '4I4' }
    local until_end = moment(left + period)
    for k = first, last do
      asked = asked + 1
      local value = values[k]
      local previous, current, good, own, number, same = 0, 0, true, nil, nil, false
      if value then
        local form = forms[#value - size]
        good = false
        if form then
          own, number, previous, current = read(form, value)
          -- Kept for a window longer if anything was counted in this one.
          same = number == index and current > 0
          -- What costs nothing moves windows on, too.
          good = own == head and (number == index or (number < index and cost > 0))
          if number + 1 == index then
            previous, current = current, 0
          elseif number < index then
            previous, current = 0, 0
          end
        end
      end
      local room = max - current - cost
      -- Beyond that it takes more than a comparison of two numbers.
      if good and previous * left < EXACT and room * period < EXACT then
        if cost == 0 or (room >= 0 and previous * left <= room * period) then
          current = current + cost
          local most, wide = current > previous and current or previous, 4
          if most < 256 then wide = 1 elseif most < 65536 then wide = 2 elseif most < 16777216 then wide = 3 end
          local new = write(forms[2 * wide], head, index, previous, current)
          if same then
            call('SET', KEYS[k], new, 'KEEPTTL')
          elseif cost > 0 then
            call('SET', KEYS[k], new, AT, until_end)
          end
          admitted[asked] = ONE
        else
          admitted[asked] = NONE
        end
        olds[k] = value or ''
        sizes[k] = value and char(#value) or NONE
      else
        admitted[asked] = NONE
        rest[#rest + 1] = { asked, k, t }
      end
    end
  else
    for k = first, last do
      asked = asked + 1
      admitted[asked] = NONE
      rest[#rest + 1] = { asked, k, t }
    end
  end
end

if group_count == 0 and #rest == 0 and run_count > 0 then
  return concat({ write('<I4dB', id, now, 0), concat(admitted), concat(sizes), concat(olds) })
end

