"""The Lua scripts of the Redis journal: each is one atomic step of the server.

Layout of the keys below the journal's prefix: `meta` has the version, the counter for all numbers,
and the clock. A thread is named by the digest of its id, 32 hex digits. Each thread has a hash,
`t:<thread>`, which every change of the thread updates, and these keys with the same prefix:

    :n         namespaces by the seq of their first checkpoint, 0 without one
    :o:<ns>    ids of checkpoints by seq
    :c         checkpoints    field: namespace and id
    :s         tasks of a step, one after the other    field: namespace and step
    :x         snapshots    field: namespace, id and schema
    :r         ids of runs by number
    :w         ids of open runs
    :i         ids of interrupts by number; each is a hash, :i:<id>
    :q:<step>  ids of the interrupts that a step asked, by number
    :f, :g     file changes: their numbers by checkpoint seq, and what they hold
    :e         newest event number of each run; the events are a stream, :e:<run>
    :m         runs that made its checkpoints
    :u, :v     digests of the shared values that its tasks and file changes hold, and how often

and over all threads

    threads                by time of change, in microseconds
    run:<id>, runs:…       runs, and their ids by number: all, by status, by idempotency key
    asked:<run>            interrupts of a run, as thread and id
    made:<run>             threads that have checkpoints of a run
    logs, logs:age         the thread that has a run's events, and when the oldest happened
    blobs, uses            shared values by digest, and how many :u and :v hold them

An id in a field is preceded by the namespace and its length, so that any text is one. A script
checks everything before its first write: Redis does not roll back. The first line lets the server
refuse it as a whole when memory runs out.
"""

from __future__ import annotations

from ...databases.redis import Script
from ...databases.redis import script as any_script

__all__ = ["COMMIT", "script"]


_THREADS = """
local function thread(name)
  return p .. 't:' .. name
end
local function scope_of(ns)
  return #ns .. ':' .. ns
end
"""


def script(text: str, *, flags: str = "") -> Script:
    """Return a script that takes the prefix first and knows how threads are named."""
    return any_script(_THREADS + text, flags=flags)


FREES = "allow-oom"

NUMBERS = """
local meta = p .. 'meta'
local function next_number()
  return call('HINCRBY', meta, 'seq', 1)
end
local function tick()
  local time = call('TIME')
  local last = tonumber(call('HGET', meta, 'clock')) or 0
  local now = math.max(time[1] * 1000000 + time[2], last + 1)
  call('HSET', meta, 'clock', now)
  return now
end
"""

_PURGE = """
local function purge(before)
  local old = call('ZRANGE', p .. 'logs:age', '-inf', '(' .. before, 'BYSCORE', 'LIMIT', 0, 4)
  for _, run in ipairs(old) do
    local log = thread(call('HGET', p .. 'logs', run) or '') .. ':e:' .. run
    local first = call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
    while first and tonumber(first[2][2]) < tonumber(before) do
      call('XDEL', log, first[1])
      first = call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
    end
    if first then
      call('ZADD', p .. 'logs:age', first[2][2], run)
    else
      call('DEL', log)
      call('ZREM', p .. 'logs:age', run)
    end
  end
end
"""

_BATCH = """
local version = count()
local stored = call('HGET', meta, 'version')
local from = math.floor((tonumber(stored) or 0) / 1000000)  -- see `databases.versions`
if stored and tonumber(stored) ~= version and (from == 0 or from > version) then
  return {'version', stored}
end
local hex, thread_id, ns, imported = take(), take(), take(), take()
local k, scope = thread(hex), scope_of(ns)
local per_run, before = count(), take()

local function several(read)
  local all = {}
  for n = 1, count() do all[n] = read() end
  return all
end
local blobs = {}
for _ = 1, count() do
  local digest = take()
  blobs[digest] = take()
end
local tasks = several(function()
  return {step = take(), id = take(), entry = take(), uses = several(take)}
end)
local checkpoints = several(function()
  return {id = take(), parent = maybe(), goes_on = take() == '1', run = maybe(), record = take()}
end)
local snapshots = several(function() return {id = take(), schema = take(), body = take()} end)
local runs = several(function()
  return {id = take(), status = take(), attempt = count(), key = maybe(), record = take()}
end)
local interrupts = several(function()
  return {id = take(), field = take(), run = take(), record = take(), answer = maybe()}
end)
local answers = several(function() return {id = take(), answer = take()} end)
local changes = several(function() return {uses = several(take), record = take()} end)
local events = several(function() return {run = take(), time = take(), record = take()} end)
local fences = several(function() return {run = take(), attempt = count(), begins = count()} end)
"""

_CHECK_RUNS = """
local is_open = {running = true, needs_approval = true}
local known = {}
local function stored(run)
  if known[run] == nil then
    local found = call('HMGET', p .. 'run:' .. run, 'thread', 'attempt', 'status')
    known[run] = false
    if found[1] then  -- a run that an older program stored has no attempt here
      local attempt = tonumber(found[2] or 1)
      known[run] = {thread = found[1], attempt = attempt, open = is_open[found[3]]}
    end
  end
  return known[run]
end
for _, named in ipairs({runs, fences}) do
  for _, one in ipairs(named) do
    local run = one.id or one.run
    if stored(run) and stored(run).thread ~= hex then return {'run', run} end
  end
end
for _, fence in ipairs(fences) do
  local old = stored(fence.run)
  if old and old.attempt >= fence.attempt + 1 - fence.begins then
    return {'superseded', fence.run, fence.attempt}
  end
end
local ended = {}
for _, run in ipairs(runs) do
  local old = stored(run.id)
  if old and old.attempt > run.attempt then return {'superseded', run.id, run.attempt} end
  ended[run.id] = not is_open[run.status]
end
if imported == '0' then
  local still_open
  local moves = #checkpoints + #tasks > 0
  for _, run in ipairs(runs) do
    local old = stored(run.id)
    local waits = run.status == 'cancelled' or run.status == 'queued'
    local begins = not old and (moves or not waits)
    if begins or (old and is_open[run.status] and not old.open) then
      if not still_open then
        still_open = {}
        for _, other in ipairs(call('SMEMBERS', k .. ':w')) do
          if not ended[other] then still_open[other] = true end
        end
      end
      local first
      for other in pairs(still_open) do
        if other ~= run.id and (not first or other < first) then first = other end
      end
      if first then return {'busy', first} end
      if is_open[run.status] then still_open[run.id] = true end
    end
  end
end
local keyed = {}
for _, run in ipairs(runs) do
  if run.key and not stored(run.id) then
    local other = keyed[run.key] or call('ZRANGE', p .. 'runs:key:' .. run.key, -1, -1)[1]
    if other and other ~= run.id then return {'known', other} end
    keyed[run.key] = run.id
  end
end
"""

_CHECKS = """
local function knows(entries, id)
  local place = 1
  while place <= #entries do
    local size, name = struct.unpack('>I4I4c0', entries, place)
    if name == id then return true end
    place = place + 4 + size
  end
  return false
end
local function has(id)
  return call('HEXISTS', k .. ':c', scope .. id) == 1
end

local steps, added = {}, {}
for _, task in ipairs(tasks) do
  local entries = steps[task.step] or call('HGET', k .. ':s', scope .. task.step) or ''
  if not knows(entries, task.id) then
    if has(task.step) then return {'late', task.step, task.id} end
    entries = entries .. task.entry
    added[#added + 1] = task
    steps[task.step] = entries
  end
end

local fresh, head = {}, call('ZRANGE', k .. ':o:' .. ns, -1, -1)[1]
for n, new in ipairs(checkpoints) do
  local exists = fresh[new.id] or has(new.id)
  local grows = new.parent == nil or fresh[new.parent] or has(new.parent)
  local on_head = new.parent == head
  if exists or not grows or (new.goes_on and not on_head and imported == '0') then
    return {'refused', n - 1, exists and 1 or 0, grows and 1 or 0, on_head and 1 or 0}
  end
  fresh[new.id] = true
  head = new.id
end
for n, snapshot in ipairs(snapshots) do
  if not fresh[snapshot.id] and not has(snapshot.id) then return {'snapshot', n - 1} end
end
for _, event in ipairs(events) do
  local owner = call('HGET', p .. 'logs', event.run)
  if owner and owner ~= hex then return {'run', event.run} end
end
"""

_STORE = """
local function use(digests, holder)
  for _, digest in ipairs(digests) do
    if call('HINCRBY', k .. holder, digest, 1) == 1
        and call('HINCRBY', p .. 'uses', digest, 1) == 1 then
      call('HSET', p .. 'blobs', digest, blobs[digest])
    end
  end
end

local now = tick()
if call('EXISTS', k) == 0 then
  call('HSET', k, 'id', thread_id, 'created', now, 'shape', now, 'checkpoints', 0, 'newest', 0)
end
call('HSET', k, 'updated', now)
call('ZADD', p .. 'threads', now, hex)

for step, entries in pairs(steps) do call('HSET', k .. ':s', scope .. step, entries) end
for _, task in ipairs(added) do use(task.uses, ':u') end
local first
for _, new in ipairs(checkpoints) do
  local seq = next_number()
  first = first or seq
  call('HSET', k .. ':c', scope .. new.id, new.record)
  call('ZADD', k .. ':o:' .. ns, seq, new.id)
  call('HSET', k, 'newest', seq)
  if new.run and call('SADD', k .. ':m', new.run) == 1 then
    call('SADD', p .. 'made:' .. new.run, hex)
  end
end
if first then
  call('HINCRBY', k, 'checkpoints', #checkpoints)
  if (tonumber(call('ZSCORE', k .. ':n', ns)) or 0) == 0 then call('ZADD', k .. ':n', first, ns) end
elseif #added > 0 then
  call('ZADD', k .. ':n', 'NX', 0, ns)
end
for _, snapshot in ipairs(snapshots) do
  call('HSET', k .. ':x', scope .. scope_of(snapshot.id) .. snapshot.schema, snapshot.body)
end
"""

_STORE_RUNS = """
for _, run in ipairs(runs) do
  local place = p .. 'run:' .. run.id
  local old = call('HMGET', place, 'number', 'status', 'key')
  local number = old[1] or next_number()
  if not old[1] then
    call('ZADD', p .. 'runs:all', number, run.id)
    call('ZADD', k .. ':r', number, run.id)
  elseif old[2] ~= run.status then
    call('ZREM', p .. 'runs:status:' .. old[2], run.id)
  end
  if old[3] and old[3] ~= run.key then
    call('ZREM', p .. 'runs:key:' .. old[3], run.id)
    call('HDEL', place, 'key')
  end
  call('ZADD', p .. 'runs:status:' .. run.status, number, run.id)
  call('HSET', place, 'number', number, 'thread', hex, 'status', run.status,
    'attempt', run.attempt, 'd', run.record)
  call(is_open[run.status] and 'SADD' or 'SREM', k .. ':w', run.id)
  if run.key then
    call('ZADD', p .. 'runs:key:' .. run.key, number, run.id)
    call('HSET', place, 'key', run.key)
  end
end
"""

_STORE_REST = """
for _, asked in ipairs(interrupts) do
  local place = k .. ':i:' .. asked.id
  local old = call('HMGET', place, 'number', 'run', 'field')
  local number = old[1] or next_number()
  if old[2] and old[2] ~= asked.run then call('ZREM', p .. 'asked:' .. old[2], hex .. asked.id) end
  if old[3] and old[3] ~= asked.field then call('ZREM', k .. ':q:' .. old[3], asked.id) end
  call('ZADD', k .. ':i', number, asked.id)
  call('ZADD', k .. ':q:' .. asked.field, number, asked.id)
  call('ZADD', p .. 'asked:' .. asked.run, number, hex .. asked.id)
  call('HSET', place, 'number', number, 'run', asked.run, 'field', asked.field, 'd', asked.record)
  if asked.answer then call('HSETNX', place, 'answer', asked.answer) end
end
for _, one in ipairs(answers) do
  local place = k .. ':i:' .. one.id
  if call('EXISTS', place) == 1 then call('HSETNX', place, 'answer', one.answer) end
end
for _, change in ipairs(changes) do
  local number = next_number()
  call('ZADD', k .. ':f', call('HGET', k, 'newest'), number)
  call('HSET', k .. ':g', number, change.record)
  use(change.uses, ':v')
end
for _, event in ipairs(events) do
  local number = call('HINCRBY', k .. ':e', event.run, 1)
  local log = k .. ':e:' .. event.run
  call('XADD', log, string.format('%.0f-1', number), 't', event.time, 'd', event.record)
  call('XTRIM', log, 'MAXLEN', per_run)
  call('HSET', p .. 'logs', event.run, hex)
  call('ZADD', p .. 'logs:age', 'NX', event.time, event.run)
end
if #events > 0 then purge(before) end
return {'stored'}
"""

_STORE_ALL = _STORE + _STORE_RUNS + _STORE_REST
COMMIT = script(NUMBERS + _PURGE + _BATCH + _CHECK_RUNS + _CHECKS + _STORE_ALL)
"""A batch, as `batches.batch_arguments` gives it -> `stored`, or why it is refused."""
