"""Where the claims lie in Redis, and the scripts that change them: each is one step.

    {prefix}:claims        hash: partition's digest and content hash -> when it is over, the
                           journal's end when it was made, and whose it is
    {prefix}:claims-due    sorted set: the same fields by when they are over
    {prefix}:claims-freed  stream of partitions in which claims were given up; a short one

Times are milliseconds of Redis' clock, so that all servers mean the same. A vector ends the
claims that were made before its record: a claim that is newer than the record stays.
"""

from __future__ import annotations

from typing import Final

from warmindex_server.journal.redis.scripts import Script

# Older ones are no news to anybody who waits: a call that waits looks at once for what is new.
FREED_MAX: Final = 1000
# Redis puts no more than this on Lua's stack at a time.
_CHUNK: Final = 1000
# So many claims that are over are taken out in about a millisecond.
_EXPIRED_PER_CALL: Final = 1024

# A value is DUE, 15 digits, REVISION, 17 digits, claimant.
_VALUE: Final = """
local function due_of(value) return tonumber(string.sub(value, 1, 15)) end
local function revision_of(value) return tonumber(string.sub(value, 16, 32)) end
local function claimant_of(value) return string.sub(value, 33) end
local function clock_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
"""

# KEYS head, claims, due, freed; ARGV claimant (or ""), its milliseconds, the most new ones, the
# most of all, the most milliseconds that a claim can have, partition, then content hashes.
# Answers the journal's end, the last entry of freed, then for each key -1: the claimant's, 0:
# nobody's, else how many milliseconds another claimant has left.
TAKE: Final = Script(
    _VALUE
    + f"""
local now, claimant, most = clock_ms(), ARGV[1], tonumber(ARGV[3])
local revision = redis.call('HGET', KEYS[1], 'revision') or '0'
local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)
local answer = {{revision, last[1] and last[1][1] or '0-0'}}
local count, due, value = 0, '', ''
if claimant ~= '' then
  local over = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, {_EXPIRED_PER_CALL})
  for first = 1, #over, {_CHUNK} do
    local part = {{unpack(over, first, math.min(first + {_CHUNK} - 1, #over))}}
    redis.call('HDEL', KEYS[2], unpack(part))
    redis.call('ZREM', KEYS[3], unpack(part))
  end
  count = redis.call('ZCARD', KEYS[3])
  due = string.format('%.0f', now + tonumber(ARGV[2]))
  value = string.format('%015.0f%017.0f', now + tonumber(ARGV[2]), tonumber(revision)) .. claimant
end
for first = 7, #ARGV, {_CHUNK} do
  local fields = {{}}
  for i = first, math.min(first + {_CHUNK} - 1, #ARGV) do
    fields[i - first + 1] = ARGV[6] .. ARGV[i]
  end
  local values, dues, words = {{}}, {{}}, 0
  for i, found in ipairs(redis.call('HMGET', KEYS[2], unpack(fields))) do
    local left = found and due_of(found) - now or 0
    -- A claim that is over, or one of a time when the clock was ahead.
    if left > tonumber(ARGV[5]) then left = 0 end
    local state = math.max(0, left)
    if claimant ~= '' then
      if left > 0 and claimant_of(found) == claimant then
        state = -1
      elseif left <= 0 and most > 0 and (found or count < tonumber(ARGV[4])) then
        state, most = -1, most - 1
        if not found then count = count + 1 end
      end
    end
    if state == -1 then
      values[words + 1] = fields[i]
      values[words + 2] = value
      dues[words + 1] = due
      dues[words + 2] = fields[i]
      words = words + 2
    end
    answer[first + i - 5] = state
  end
  if words > 0 then
    redis.call('HSET', KEYS[2], unpack(values))
    redis.call('ZADD', KEYS[3], unpack(dues))
  end
end
return answer
"""
)

# KEYS claims, due, freed; ARGV claimant, partition, then content hashes. Ends the claimant's own
# claims, and tells those who wait; answers how many there were.
RELEASE: Final = Script(
    _VALUE
    + f"""
local now, count = clock_ms(), 0
for i = 3, #ARGV do
  local field = ARGV[2] .. ARGV[i]
  local found = redis.call('HGET', KEYS[1], field)
  if found and claimant_of(found) == ARGV[1] and due_of(found) > now then
    redis.call('HDEL', KEYS[1], field)
    redis.call('ZREM', KEYS[2], field)
    count = count + 1
  end
end
if count > 0 then redis.call('XADD', KEYS[3], 'MAXLEN', '~', {FREED_MAX}, '*', 'p', ARGV[2]) end
return count
"""
)

# KEYS claims, due; ARGV a field and the revision of the record that brought its vector, and so
# on. Ends the claims that were made before; answers how many there were.
END: Final = Script(
    _VALUE
    + """
local count = 0
for i = 1, #ARGV, 2 do
  local found = redis.call('HGET', KEYS[1], ARGV[i])
  if found and revision_of(found) < tonumber(ARGV[i + 1]) then
    redis.call('HDEL', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[2], ARGV[i])
    count = count + 1
  end
end
return count
"""
)
