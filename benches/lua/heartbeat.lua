-- update_heartbeat.lua as fast as Lua gets: count and time stand apart from the metadata, and the time is given.
-- KEYS: metadata by session, heartbeats by session. ARGV: session, unix seconds.
local call = redis.call
local session = ARGV[1]
local beats = call('HGET', KEYS[2], session)
if not beats then
  return {0, 'SESSION_NOT_ACTIVE'}
end
local count = string.match(beats, '^%d+') + 1
call('HSET', KEYS[2], session, count .. ' ' .. ARGV[2])
return {1, 'HEARTBEAT_UPDATED', count}
