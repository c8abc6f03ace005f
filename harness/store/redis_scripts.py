"""The Lua scripts of the Redis store: each is one atomic step of the server.

Keys below the store's prefix. An item's name is its stored namespace (see `harness.store.items`), a
record separator and its key; names sort as items are ordered.

    items      name: times, lifetime and value
    names      the names, in order
    ends       the names, by when they expire
    spaces     the namespaces, in order; counts: how many items each has
    vectors    name: its vectors, one after the other
    words      name: the words it is found by; sizes: how many they are, with repetitions
    w:<word>   name: how often it has the word
    meta       version; `dims`, bytes of a vector; `total`, the sum of all sizes
"""

from __future__ import annotations

from ..databases.redis import script

__all__ = ["BATCH", "REFRESH"]

_KEYS = """
local items, names, ends = p .. 'items', p .. 'names', p .. 'ends'
local spaces, counts = p .. 'spaces', p .. 'counts'
local vectors, words, sizes = p .. 'vectors', p .. 'words', p .. 'sizes'
local meta, time = p .. 'meta', call('TIME')
local now = count() or (time[1] + time[2] / 1e6)
"""

_WRITES = """
local function unindex(name)
  local found = call('HGET', words, name)
  if not found then return end
  for word in string.gmatch(found, '[^ ]+') do call('HDEL', p .. 'w:' .. word, name) end
  call('HDEL', words, name)
  call('HINCRBY', meta, 'total', -call('HGET', sizes, name))
  call('HDEL', sizes, name)
end
local function space_of(name)
  return string.sub(name, 1, string.find(name, '\\30', 1, true) - 1)
end
local function remove(name)
  if call('HDEL', items, name) == 0 then return end
  call('ZREM', names, name)
  call('ZREM', ends, name)
  call('HDEL', vectors, name)
  unindex(name)
  local space = space_of(name)
  if call('HINCRBY', counts, space, -1) == 0 then
    call('HDEL', counts, space)
    call('ZREM', spaces, space)
  end
end
local function index(name)
  local found, total = {}, 0
  for place = 1, count() do
    local word, times = take(), count()
    found[place], total = word, total + times
    call('HSET', p .. 'w:' .. word, name, times)
  end
  if total > 0 then
    call('HSET', words, name, table.concat(found, ' '))
    call('HSET', sizes, name, total)
    call('HINCRBY', meta, 'total', total)
  end
end
local function put()
  local name, value, ttl, directions = take(), take(), take(), take()
  local old, created = call('HGET', items, name), string.format('%.17g', now)
  if old then
    created = string.match(old, '^[^ ]+')
    unindex(name)
  else
    call('ZADD', names, 0, name)
    local space = space_of(name)
    if call('HINCRBY', counts, space, 1) == 1 then call('ZADD', spaces, 0, space) end
  end
  call('HSET', items, name, string.format('%s %.17g %s\\n', created, now, ttl) .. value)
  if ttl == '' then
    call('ZREM', ends, name)
  else
    call('ZADD', ends, now + tonumber(ttl), name)
  end
  if directions == '' then
    call('HDEL', vectors, name)
  else
    call('HSET', vectors, name, directions)
  end
  index(name)
  return ''
end
"""

_READS = """
local function row(name, extra)
  return {name, call('HGET', items, name), call('ZSCORE', ends, name) or '', extra or ''}
end
local function get()
  local name = take()
  if call('HEXISTS', items, name) == 1 then return row(name) end
  return false
end
local function page()
  local first, past, offset, limit = take(), take(), take(), take()
  local rows = {}
  for place, name in ipairs(call('ZRANGEBYLEX', names, first, past, 'LIMIT', offset, limit)) do
    rows[place] = row(name)
  end
  return rows
end
local function near()
  local first, past = take(), take()
  local rows = {}
  for _, name in ipairs(call('ZRANGEBYLEX', names, first, past)) do
    local directions = call('HGET', vectors, name)
    if directions then rows[#rows + 1] = row(name, directions) end
  end
  return rows
end
local function scored(begin)
  local scores, indexed = {}, call('HLEN', sizes)
  local average = (tonumber(call('HGET', meta, 'total')) or 0) / math.max(indexed, 1)
  for _ = 1, count() do
    local found = call('HGETALL', p .. 'w:' .. take())
    local having = #found / 2
    local weight = math.log(1 + (indexed - having + 0.5) / (having + 0.5))
    for place = 1, #found, 2 do
      local name, times = found[place], tonumber(found[place + 1])
      if string.sub(name, 1, #begin) == begin then
        local size = call('HGET', sizes, name)
        local length = times + 1.2 * (0.25 + 0.75 * size / average)
        scores[name] = (scores[name] or 0) + weight * times * 2.2 / length
      end
    end
  end
  return scores
end
local function with_words()
  local begin, offset, limit = take(), count(), count()
  local scores, found, rows = scored(begin), {}, {}
  for name in pairs(scores) do found[#found + 1] = name end
  table.sort(found, function(left, right)
    if scores[left] ~= scores[right] then return scores[left] > scores[right] end
    return left < right
  end)
  for place = offset + 1, math.min(offset + limit, #found) do
    rows[#rows + 1] = row(found[place], string.format('%.17g', scores[found[place]]))
  end
  return rows
end
local function namespaces()
  local first, past = take(), take()
  return call('ZRANGEBYLEX', spaces, first, past)
end
"""

BATCH = script(
    _KEYS
    + _WRITES
    + _READS
    + """
local length = count()
local dims = tonumber(call('HGET', meta, 'dims'))
if length and length ~= dims then
  if dims and call('HLEN', vectors) > 0 then return dims end
  call('HSET', meta, 'dims', length)
end
local expired = call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 201)
for place = 1, math.min(#expired, 200) do remove(expired[place]) end
if #expired > 200 then return false end
local function delete()
  remove(take())
  return ''
end
local work = {get = get, put = put, delete = delete, page = page, near = near,
              words = with_words, namespaces = namespaces}
local results = {}
for place = 1, count() do results[place] = work[take()]() end
return results
"""
)
"""prefix, now, bytes of a vector or '', how many operations, and these -> the result of each.

An operation is its name and what it takes. Nothing instead of results: more had expired than one
step removes, nothing was done, and it has to be called again. A number: the bytes of the vectors
there are, which are others; nothing was done.
"""

REFRESH = script(
    _KEYS
    + """
local found = {}
for place = 1, count() do
  local name, ends_at = take(), ''
  local ttl = string.match(call('HGET', items, name) or '', '^[^ ]+ [^ ]+ ([^ \\n]+)\\n')
  if ttl then
    ends_at = string.format('%.17g', now + tonumber(ttl))
    call('ZADD', ends, ends_at, name)
  end
  found[place] = ends_at
end
return found
"""
)
"""prefix, now, how many names, and these -> when each expires now, '' for one that does not."""
