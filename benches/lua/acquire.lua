-- acquire_seat.lua as fast as Lua gets: the metadata stored as sent, the time given, the hash itself the count of holders.
-- KEYS: metadata by session, heartbeats by session. ARGV: session, seats, metadata, unix seconds.
local call = redis.call
local held, session, seats = KEYS[1], ARGV[1], tonumber(ARGV[2])
local used = call('HLEN', held)
if used < seats then
  if call('HSETNX', held, session, ARGV[3]) == 1 then
    call('HSET', KEYS[2], session, '0 ' .. ARGV[4])
    return {1, 'ACQUIRED', used + 1, seats}
  end
elseif call('HEXISTS', held, session) == 0 then
  return {0, 'NO_SEATS_AVAILABLE', used, seats}
end
return {1, 'ALREADY_ACTIVE', used}
