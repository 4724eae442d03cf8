"""The scripts that run inside Redis: each is one step that nothing comes between.

    {prefix}:head            hash: history, revision, nonce (of the last record), and of the
                             snapshot: snapshot_key, snapshot_revision, snapshot_nonce,
                             snapshot_batches
    {prefix}:log:HISTORY     stream: one entry per record, its id is "REVISION-0"
                               l  link: nonce of the entry before, nonce of this one
                               r  the record's frame; none on a history's first entry
                               h  on a history's first entry: the history
    {prefix}:snapshot:…      list: the frames of a snapshot, one batch per element
    {prefix}:snapshot-lock   who writes a snapshot; expires

Revisions are below 2^53 for the next two centuries, so Lua's numbers hold them exactly.
"""

from __future__ import annotations

import hashlib
from typing import Final

# Bytes of a nonce: two records have the same one with a chance of 2^-64.
NONCE_BYTES: Final = 8
# Entries that one step of a cut removes at most: a step stays below a few milliseconds.
CUT_ENTRIES: Final = 10_000


class Script:
    """A script and the name that Redis keeps it under."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


# KEYS head, log; ARGV history, the writer's revision, "1" for a repetition, then nonce and
# frame of each record. Answers {"ok", last revision}, or {"moved"} where the head is of
# another history, {"lost"} where Redis has less than the writer has read.
APPEND: Final = Script("""
local head = redis.call('HMGET', KEYS[1], 'history', 'revision', 'nonce')
if head[1] ~= ARGV[1] then return {'moved'} end
local revision = tonumber(head[2])
if revision < tonumber(ARGV[2]) or redis.call('EXISTS', KEYS[2]) == 0 then return {'lost'} end
if head[3] == ARGV[#ARGV - 1] then return {'ok', head[2]} end
if ARGV[3] == '1' then
  local start = '(' .. ARGV[2] .. '-0'
  while true do
    local entries = redis.call('XRANGE', KEYS[2], start, '+', 'COUNT', 16)
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      local fields = entry[2]
      for i = 1, #fields, 2 do
        if fields[i] == 'l' and string.sub(fields[i + 1], -8) == ARGV[4] then
          local first = tonumber(string.match(entry[1], '^%d+'))
          return {'ok', string.format('%.0f', first + (#ARGV - 3) / 2 - 1)}
        end
      end
      start = '(' .. entry[1]
    end
  end
end
local before = head[3]
for i = 4, #ARGV, 2 do
  revision = revision + 1
  redis.call('XADD', KEYS[2], string.format('%.0f-0', revision),
             'l', before .. ARGV[i], 'r', ARGV[i + 1])
  before = ARGV[i]
end
local last = string.format('%.0f', revision)
redis.call('HSET', KEYS[1], 'revision', last, 'nonce', before)
return {'ok', last}
""")

# KEYS head, the old history's log (or head again), the new one's; ARGV the old history or "",
# the new one, a nonce, Unix microseconds. Begins the new history upon what is there of the old
# one, unless somebody else has begun another meanwhile; answers the one that is. Where the log
# is gone, the first entry links to the snapshot.
BEGIN: Final = Script("""
local head = redis.call('HMGET', KEYS[1], 'history', 'revision', 'nonce', 'snapshot_nonce')
local old = head[1] or ''
if old ~= ARGV[1] then return old end
local revision = math.max(tonumber(head[2] or '-1') + 1, tonumber(ARGV[4]) - 1)
local before
if old ~= '' and redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('RENAME', KEYS[2], KEYS[3])
  local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
  if #last == 1 then
    revision = math.max(revision, tonumber(string.match(last[1][1], '^%d+')) + 1)
  end
  before = head[3]
else
  before = head[4]
end
local first = string.format('%.0f', revision)
local link = (before or string.rep('\\0', 8)) .. ARGV[3]
redis.call('XADD', KEYS[3], first .. '-0', 'l', link, 'h', ARGV[2])
redis.call('HSET', KEYS[1], 'history', ARGV[2], 'revision', first, 'nonce', ARGV[3])
return ARGV[2]
""")

# KEYS head, log. Answers what a reader compares itself with.
LOOK: Final = Script("""
local head = redis.call('HMGET', KEYS[1], 'history', 'revision', 'nonce')
return {head[1] or '', head[2] or '0', head[3] or '', redis.call('EXISTS', KEYS[2])}
""")

# KEYS head, log, list, lock; ARGV history, lock's token, revision, nonce at it, batches, the
# milliseconds that readers of the old list have left, the first revision that stays in the
# log. Answers 1, or 0 where the history, the lock or the pointer has moved on, or where the
# list is not whole.
PUBLISH: Final = Script(
    """
local head = redis.call('HMGET', KEYS[1], 'history', 'snapshot_revision', 'snapshot_key')
if head[1] ~= ARGV[1] or redis.call('GET', KEYS[4]) ~= ARGV[2]
   or tonumber(head[2] or '0') >= tonumber(ARGV[3])
   or redis.call('LLEN', KEYS[3]) ~= tonumber(ARGV[5]) then
  return 0
end
redis.call('PERSIST', KEYS[3])
redis.call('HSET', KEYS[1], 'snapshot_key', KEYS[3], 'snapshot_revision', ARGV[3],
           'snapshot_nonce', ARGV[4], 'snapshot_batches', ARGV[5])
if head[3] then redis.call('PEXPIRE', head[3], ARGV[6]) end
redis.call('XTRIM', KEYS[2], 'MINID', '~', ARGV[7] .. '-0', 'LIMIT', """
    + str(CUT_ENTRIES)
    + """)
redis.call('DEL', KEYS[4])
return 1
"""
)

# KEYS lock, list; ARGV token, lock's milliseconds, list's milliseconds, then batches. Appends to
# a list that is being written; answers its length, or -1 where the lock is lost.
PUT_PARTS: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local length = redis.call('LLEN', KEYS[2])
for i = 4, #ARGV do length = redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return length
""")

# KEYS lock; ARGV token. Gives the lock back, if it is still one's own.
UNLOCK: Final = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
""")

# KEYS head, a recovered history's head; ARGV the damaged history. Puts one in the place of the
# other; answers 1, or 0 where the head is no longer that history's.
REPLACE: Final = Script("""
if (redis.call('HGET', KEYS[1], 'history') or '') ~= ARGV[1] then return 0 end
redis.call('RENAME', KEYS[2], KEYS[1])
return 1
""")
