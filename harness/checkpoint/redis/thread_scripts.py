"""Lua scripts about whole threads in a Redis journal: reading, copying and deleting.

`scripts` describes the keys.
"""

from __future__ import annotations

from .scripts import FREES, NUMBERS, script

__all__ = [
    "COPY",
    "DELETE",
    "EVENTS",
    "FILE_CHANGES",
    "FIND_RUNS",
    "HISTORY",
    "HOLD",
    "INTERRUPTS",
    "LOAD",
    "NAMESPACES",
    "RUN",
    "SIZE",
    "THREADS",
]

_RELEASE = """
local function release(digest)
  if call('HINCRBY', p .. 'uses', digest, -1) <= 0 then
    call('HDEL', p .. 'uses', digest)
    call('HDEL', p .. 'blobs', digest)
  end
end
"""

DELETE = script(
    _RELEASE
    + """
local hex = take()
local k = thread(hex)
for _, ns in ipairs(call('ZRANGE', k .. ':n', 0, -1)) do call('UNLINK', k .. ':o:' .. ns) end
for _, run in ipairs(call('ZRANGE', k .. ':r', 0, -1)) do
  local found = call('HMGET', p .. 'run:' .. run, 'status', 'key')
  call('ZREM', p .. 'runs:all', run)
  if found[1] then call('ZREM', p .. 'runs:status:' .. found[1], run) end
  if found[2] then call('ZREM', p .. 'runs:key:' .. found[2], run) end
  call('UNLINK', p .. 'run:' .. run)
end
for _, id in ipairs(call('ZRANGE', k .. ':i', 0, -1)) do
  local found = call('HMGET', k .. ':i:' .. id, 'run', 'field')
  if found[1] then call('ZREM', p .. 'asked:' .. found[1], hex .. id) end
  if found[2] then call('UNLINK', k .. ':q:' .. found[2]) end
  call('UNLINK', k .. ':i:' .. id)
end
for _, run in ipairs(call('HKEYS', k .. ':e')) do
  call('UNLINK', k .. ':e:' .. run)
  call('HDEL', p .. 'logs', run)
  call('ZREM', p .. 'logs:age', run)
end
for _, run in ipairs(call('SMEMBERS', k .. ':m')) do call('SREM', p .. 'made:' .. run, hex) end
for _, holder in ipairs({':u', ':v'}) do
  for _, digest in ipairs(call('HKEYS', k .. holder)) do release(digest) end
end
local names = {'', ':n', ':c', ':s', ':x', ':r', ':w', ':i', ':f', ':g', ':e', ':m', ':u', ':v'}
for _, name in ipairs(names) do call('UNLINK', k .. name) end
call('ZREM', p .. 'threads', hex)
return 1
""",
    flags=FREES,
)
"""prefix, thread -> nothing is left of it."""

COPY = script(
    NUMBERS
    + """
local source, hex, id = take(), take(), take()
local from, k = thread(source), thread(hex)
if call('EXISTS', from) == 0 then return 'unknown' end
if call('EXISTS', k) == 1 then return 'exists' end
local made = {}
for _, ns in ipairs(call('ZRANGE', from .. ':n', 0, -1)) do
  local found = call('ZRANGE', from .. ':o:' .. ns, 0, -1, 'WITHSCORES')
  for n = 1, #found, 2 do made[#made + 1] = {tonumber(found[n + 1]), ns, found[n]} end
  call('ZADD', k .. ':n', 0, ns)
end
table.sort(made, function(one, other) return one[1] < other[1] end)
local newest, seen = 0, {}
for _, one in ipairs(made) do
  newest = next_number()
  call('ZADD', k .. ':o:' .. one[2], newest, one[3])
  if not seen[one[2]] then
    seen[one[2]] = true
    call('ZADD', k .. ':n', newest, one[2])
  end
end
for _, name in ipairs({':c', ':s', ':x', ':m', ':u'}) do call('COPY', from .. name, k .. name) end
for _, digest in ipairs(call('HKEYS', k .. ':u')) do call('HINCRBY', p .. 'uses', digest, 1) end
for _, run in ipairs(call('SMEMBERS', k .. ':m')) do call('SADD', p .. 'made:' .. run, hex) end
local now = tick()
call('HSET', k, 'id', id, 'created', now, 'updated', now, 'shape', now, 'checkpoints', #made,
  'newest', newest)
call('ZADD', p .. 'threads', now, hex)
return 'copied'
"""
)
"""prefix, source, target, its id -> `copied`, `unknown` or `exists`."""

HOLD = script(
    _RELEASE
    + """
local holder = thread(take()) .. take()
for _ = 1, count() do
  local digest, times, body = take(), count(), take()
  local held = call('HEXISTS', holder, digest) == 1
  if times == 0 then
    if held then
      call('HDEL', holder, digest)
      release(digest)
    end
  else
    call('HSET', holder, digest, times)
    if not held and call('HINCRBY', p .. 'uses', digest, 1) == 1 then
      call('HSET', p .. 'blobs', digest, body)
    end
  end
end
return 1
""",
    flags=FREES,
)
"""prefix, thread, `:u` or `:v`, digests with their uses from now on and their values -> what is
used is kept, and what nobody uses any more is freed."""


_READS = "no-writes"

LOAD = script(
    """
local hex, ns = take(), take()
local id, place, cached, schema, most = maybe(), maybe(), maybe(), maybe(), count()
local k, scope = thread(hex), scope_of(ns)
local order, shape = k .. ':o:' .. ns, call('HGET', k, 'shape')
if not shape then return {} end

local function question(asked)
  local found = call('HMGET', k .. ':i:' .. asked, 'run', 'field', 'd', 'answer')
  return {asked, found[1], found[2], found[3], found[4]}
end
local function unfinished(step)
  if call('HEXISTS', k .. ':c', step) == 1 then return '', {} end
  local asked = {}
  for n, one in ipairs(call('ZRANGE', k .. ':q:' .. step, 0, -1)) do asked[n] = question(one) end
  return call('HGET', k .. ':s', step) or '', asked
end

local found = {}
if not place then
  place = id or call('ZRANGE', order, -1, -1)[1]
  local record = place and call('HGET', k .. ':c', scope .. place)
  if not record then return {} end
  local pending, asked = unfinished(scope .. string.sub(record, 1, 21))
  found = {place, call('ZSCORE', order, place), record, pending, asked, call('ZCARD', order)}
end

local steps, finish, snapshot = {}, 'more', nil
while #steps < most do
  if place == cached then finish = 'cached' break end
  snapshot = schema and call('HGET', k .. ':x', scope .. scope_of(place) .. schema)
  if snapshot then finish = 'snapshot' break end
  local record = call('HGET', k .. ':c', scope .. place)
  if not record then finish = 'missing' break end
  steps[#steps + 1] = call('HGET', k .. ':s', scope .. place) or ''
  local parent = struct.unpack('>I4c0', record, 22)
  if parent == '' then finish = 'root' break end
  place = string.sub(parent, 2)
end
return {shape, found, steps, finish, place, snapshot or ''}
""",
    flags=_READS,
)
"""prefix, thread, ns, id?, place?, cached?, schema?, most -> the thread's shape, the checkpoint
(only without a place), the tasks of up to so many steps, newest first, and why it ended where."""

HISTORY = script(
    """
local hex, ns, before, most = take(), take(), maybe(), take()
local k, scope = thread(hex), scope_of(ns)
local order, from = k .. ':o:' .. ns, '+inf'
if before then
  local seq = call('ZSCORE', order, before)
  if not seq then return {} end
  from = '(' .. seq
end
local found = call('ZREVRANGEBYSCORE', order, from, '-inf', 'WITHSCORES', 'LIMIT', 0, most)
local rows = {}
for n = 1, #found, 2 do
  rows[#rows + 1] = {found[n], found[n + 1], call('HGET', k .. ':c', scope .. found[n])}
end
return rows
""",
    flags=_READS,
)
"""prefix, thread, ns, before?, most -> id, seq and record of checkpoints, newest first."""

NAMESPACES = script(
    "return call('ZRANGE', thread(take()) .. ':n', '(0', '+inf', 'BYSCORE')", flags=_READS
)
"""prefix, thread -> namespaces."""

_RUN_ROW = """
local function run_row(id)
  local found = call('HMGET', p .. 'run:' .. id, 'thread', 'd', 'number')
  if not found[1] then return false end
  return {id, call('HGET', thread(found[1]), 'id'), found[2], found[3]}
end
"""

# A number is formatted, as the server may write a large one with an exponent.
_PAGE = """
local function begins(id, beginning)
  return id and string.sub(id, 1, #beginning) == beginning
end
local function page(place, below, beginning, most, look, id_of, row_of)
  if beginning == '' then look = most end
  local found = call('ZREVRANGEBYSCORE', place, below, '-inf', 'WITHSCORES', 'LIMIT', 0, look)
  local rows, last = {}, #found
  for n = 1, #found, 2 do
    if beginning == '' or begins(id_of(found[n]), beginning) then
      rows[#rows + 1] = row_of(found[n])
      if #rows == most then
        last = n + 1
        break
      end
    end
  end
  local ended = #found < 2 * look and last == #found
  return {rows, ended and '' or string.format('%.0f', found[last])}
end
"""

THREADS = script(
    _RUN_ROW
    + _PAGE
    + """
local below, beginning, most, look = take(), take(), count(), count()
local function id_of(hex)
  return call('HGET', thread(hex), 'id')
end
local function row_of(hex)
  local k = thread(hex)
  local last = call('ZRANGE', k .. ':r', -1, -1)[1]
  local info = call('HMGET', k, 'id', 'checkpoints', 'created', 'updated')
  return {info[1], info[2], info[3], info[4], last and run_row(last) or {}}
end
return page(p .. 'threads', below, beginning, most, look, id_of, row_of)
""",
    flags=_READS,
)
"""prefix, time to begin from, what ids begin with, most, how many to look at -> id, number of
checkpoints, times, and last run of threads; and the time to go on from, empty at the end."""

RUN = script(_RUN_ROW + "return run_row(take())", flags=_READS)
"""prefix, id -> id, thread, record, number."""

FIND_RUNS = script(
    _RUN_ROW
    + _PAGE
    + """
local hex, status, key, below = maybe(), maybe(), maybe(), take()
local beginning, most, look = take(), count(), count()
local function id_of(id)
  return id
end
local keys = {}
if hex then keys[#keys + 1] = thread(hex) .. ':r' end
if status then keys[#keys + 1] = p .. 'runs:status:' .. status end
if key then keys[#keys + 1] = p .. 'runs:key:' .. key end
if #keys < 2 then
  return page(keys[1] or p .. 'runs:all', below, beginning, most, look, id_of, run_row)
end
local end_at = tonumber(string.match(below, '^%((%d+)$')) or math.huge
local command = {'ZINTER', #keys}
for _, word in ipairs(keys) do command[#command + 1] = word end
for _, word in ipairs({'AGGREGATE', 'MAX', 'WITHSCORES'}) do command[#command + 1] = word end
local all = call(unpack(command))
local rows, last = {}, ''
for n = #all - 1, 1, -2 do
  if #rows == most then return {rows, last} end
  if tonumber(all[n + 1]) < end_at and begins(all[n], beginning) then
    rows[#rows + 1], last = run_row(all[n]), string.format('%.0f', all[n + 1])
  end
end
return {rows, ''}
""",
    flags=_READS,
)
"""prefix, thread?, status?, key?, number to begin from, what ids begin with, most, how many to
look at -> rows of runs, newest first; and the number to go on from, empty at the end."""

INTERRUPTS = script(
    """
local rows = {}
for n, member in ipairs(call('ZRANGE', p .. 'asked:' .. take(), 0, -1)) do
  local k, id = thread(string.sub(member, 1, 32)), string.sub(member, 33)
  local found = call('HMGET', k .. ':i:' .. id, 'run', 'field', 'd', 'answer')
  rows[n] = {call('HGET', k, 'id'), {id, found[1], found[2], found[3], found[4]}}
end
return rows
""",
    flags=_READS,
)
"""prefix, run -> thread and question, in order."""

FILE_CHANGES = script(
    """
local k = thread(take())
local found = call('ZRANGE', k .. ':f', take(), '+inf', 'BYSCORE', 'WITHSCORES')
local rows = {}
for n = 1, #found, 2 do
  rows[#rows + 1] = {found[n], found[n + 1], call('HGET', k .. ':g', found[n])}
end
return rows
""",
    flags=_READS,
)
"""prefix, thread, seq -> number, checkpoint seq and record of changes."""

EVENTS = script(
    """
local run, after, most = take(), take(), take()
local hex = call('HGET', p .. 'logs', run)
if not hex then return {} end
return call('XRANGE', thread(hex) .. ':e:' .. run, '(' .. after .. '-1', '+', 'COUNT', most)
""",
    flags=_READS,
)
"""prefix, run, number, most -> events as the stream has them."""

SIZE = script(
    """
local k, size = thread(take()), 0
for _, name in ipairs({':s', ':x', ':g'}) do
  for _, field in ipairs(call('HKEYS', k .. name)) do
    size = size + call('HSTRLEN', k .. name, field)
  end
end
local seen = {}
for _, holder in ipairs({':u', ':v'}) do
  for _, digest in ipairs(call('HKEYS', k .. holder)) do
    if not seen[digest] then size = size + call('HSTRLEN', p .. 'blobs', digest) end
    seen[digest] = true
  end
end
return size
""",
    flags=_READS,
)
"""prefix, thread -> bytes of its values."""
