"""A cache in a Redis server: for many processes and machines.

Needs the extra `redis`, an asyncio event loop, and Redis 7.0 or later (or Valkey) without modules.

Below the prefix, `values` holds the values by key, `sizes` their sizes, `ages` and `ends` the keys
by the number of their last write and by when they expire, and `meta` the sum of all sizes. Each
operation is one script, so whichever process writes, the sum is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ..databases.redis import script
from ..databases.redis_keys import KeysKind, RedisKeys
from . import CacheError

__all__ = ["RedisCache"]

_COMMON = """
local values, sizes, ages, ends = p .. 'values', p .. 'sizes', p .. 'ages', p .. 'ends'
local meta, time = p .. 'meta', call('TIME')
local now = count() or (time[1] + time[2] / 1e6)
local function remove(key)
  local size = call('HGET', sizes, key)
  if size then
    call('HINCRBY', meta, 'bytes', -size)
    call('HDEL', sizes, key)
  end
  call('HDEL', values, key)
  call('ZREM', ages, key)
  call('ZREM', ends, key)
end
local function drop(found)
  for _, key in ipairs(found) do remove(key) end
end
"""

_GET = script(
    _COMMON
    + """
local key = take()
local expires = call('ZSCORE', ends, key)
if expires and tonumber(expires) <= now then return false end
return call('HGET', values, key)
"""
)
"""prefix, now, key -> the value, or nothing."""

_SET = script(
    _COMMON
    + """
local key, value, size, ttl, most = take(), take(), take(), take(), count()
remove(key)
call('HSET', values, key, value)
call('HSET', sizes, key, size)
call('ZADD', ages, call('HINCRBY', meta, 'writes', 1), key)
if ttl ~= '' then call('ZADD', ends, now + tonumber(ttl), key) end
call('HINCRBY', meta, 'bytes', size)
drop(call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100))
while tonumber(call('HGET', meta, 'bytes')) > most do
  drop(call('ZRANGE', ages, 0, 0))
end
return 1
"""
)
"""prefix, now, key, value, size, ttl or '', most bytes: stores a value and makes room for it."""

_CLEAR = script(
    """
take()
call('UNLINK', p .. 'values', p .. 'sizes', p .. 'ages', p .. 'ends')
call('HSET', p .. 'meta', 'bytes', 0)
return 1
""",
    flags="allow-oom",
)

_CACHE = KeysKind("cache", "a change", 1, CacheError, CacheError)


class RedisCache:
    """A `Cache` over keys of a Redis server.

    It connects at the first use, or by `open()` or `async with` if its errors are wanted early.
    `close()` is final.

    Args:
        url: The server and database: `redis://`, `rediss://` (TLS) or `unix://`.
        prefix: What all its keys begin with. No other program's keys may begin with it.
        max_bytes: Bytes of keys and values kept; what was written first goes first. A value of
            more than half of it is not stored.
        connections: How many there are at most; more callers wait.
        timeout: Seconds that a caller waits for a connection at most, and then for each answer.
        clock: Unix time in seconds; by default the server's.

    Raises:
        ValueError: An argument is not as described.
    """

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379/0",
        *,
        prefix: str = "deep-agent:cache:",
        max_bytes: int = 256 * 1024 * 1024,
        connections: int = 8,
        timeout: float = 10.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be positive; got {max_bytes}")
        self._keys = RedisKeys(_CACHE, url, prefix, connections=connections, timeout=timeout)
        self._max_bytes = max_bytes
        self._clock = clock

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect now.

        Raises:
            CacheError: The server cannot be reached, refuses, or is not one that will do.
        """
        await self._keys.open()

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        await self._keys.close()

    async def get(self, key: str) -> bytes | None:
        """Return the value; see `Cache`."""
        (value,) = await self._keys.run((_GET, [self._now(), key]), changes=False)
        return value

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        """Store a value; see `Cache`."""
        size = len(key.encode()) + len(value)
        if size > self._max_bytes // 2:
            return
        expires = "" if ttl is None else ttl
        arguments = [self._now(), key, value, size, expires, self._max_bytes]
        await self._keys.run((_SET, arguments), changes=True)

    async def clear(self) -> None:
        """Remove everything; see `Cache`."""
        await self._keys.run((_CLEAR, [""]), changes=True)

    def _now(self) -> float | str:
        return "" if self._clock is None else self._clock()
