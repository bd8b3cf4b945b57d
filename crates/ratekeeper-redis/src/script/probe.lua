-- Uses each command that the other scripts use, so that a permission that is missing is found before a
-- request needs it.
--
-- KEYS[1]: a counter that belongs to no caller. ARGV: none.
-- Reply: an empty string, or an error. If a command is not permitted, the error names it.

local key = KEYS[1]
local second = redis.call('TIME')[1] + 1
local uses = {
  {'GET', key},
  {'MGET', key},
  {'SET', key, '', 'PX', 1000},
  {'SETRANGE', key, 0, ' '},
  {'GETRANGE', key, 0, 0},
  {'PEXPIREAT', key, second * 1000},
  {'DEL', key},
}
for _, use in ipairs(uses) do
  local reply = redis.pcall(unpack(use))
  if type(reply) == 'table' and reply.err then
    local why = reply.err
    local forbidden = why:find('t run this command', 1, true) or why:find('nknown Redis command', 1, true)
    if forbidden or why:find('NOPERM', 1, true) then
      return redis.error_reply('NOPERM scripts may not use ' .. use[1] .. ', which the store needs: ' .. why)
    end
    return reply
  end
end
return ''
