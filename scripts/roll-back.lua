-- Gives every pool of every database back to the legacy keys, and returns how many sessions that were and which pools could
-- not be given back, with the reason. docs/migration.md says when to run it.
local sessions, left, database = 0, {}, 0
while not redis.pcall('SELECT', database).err do
  local cursor = '0'
  repeat
    local page = redis.call('SCAN', cursor, 'TYPE', 'seat-pool', 'COUNT', 1000)
    cursor = page[1]
    for _, pool in ipairs(page[2]) do
      local keys = 'license:' .. pool
      local reply = redis.pcall('SEAT.EXPORT', pool, keys .. ':active_sessions', keys .. ':session_metadata')
      if type(reply) == 'number' then
        sessions = sessions + reply
      else
        table.insert(left, 'database ' .. database .. ', ' .. pool .. ': ' .. reply.err)
      end
    end
  until cursor == '0'
  database = database + 1
end
return {sessions, left}
