-- release_seat.lua as fast as Lua gets.
-- KEYS: metadata by session, heartbeats by session. ARGV: session.
local call = redis.call
if call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return {0, 'SESSION_NOT_FOUND'}
end
call('HDEL', KEYS[2], ARGV[1])
return {1, 'RELEASED', call('HLEN', KEYS[1])}
