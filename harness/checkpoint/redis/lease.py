"""A lease on the journal in a Redis server: a key that expires unless it is renewed."""

from __future__ import annotations

from typing import Any, cast

import anyio
from redis.asyncio import Redis
from redis.exceptions import RedisError

from ...databases import reason_of
from ...errors import CheckpointError
from ..lease import Holder

__all__ = ["LIFETIME_SECONDS", "RedisLease"]

LIFETIME_SECONDS = 15
_SECONDS = 5

_TAKE = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return held end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return ''
"""
_DROP = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return ''
"""


class RedisLease:
    """See `Lease`.

    Args:
        url: The server and database.
        holder: The name of this process.
        prefix: Prefix of the journal's keys.
    """

    def __init__(self, url: str, holder: Holder, *, prefix: str) -> None:
        self._us = holder.text()
        self._key = f"deep-agent-lease:{prefix}"
        self._redis: Any = cast(Any, Redis).from_url(
            url,
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
            decode_responses=True,
            protocol=2,
        )

    async def acquire(self) -> Holder | None:
        """See `Lease`."""
        held = await self._run(_TAKE, self._us, LIFETIME_SECONDS)
        return Holder.parse(held) if held else None

    async def take_over(self, dead: Holder) -> None:
        """See `Lease`."""
        await self._run(_DROP, dead.text())

    async def release(self) -> None:
        """See `Lease`."""
        with anyio.CancelScope(shield=True):
            try:
                await self._run(_DROP, self._us)
            finally:
                await self._redis.aclose()

    async def _run(self, script: str, *arguments: object) -> str:
        try:
            with anyio.fail_after(2 * _SECONDS):
                return str(await self._redis.eval(script, 1, self._key, *arguments))
        except (RedisError, OSError, TimeoutError) as error:
            why = "it does not answer" if isinstance(error, TimeoutError) else reason_of(error)
            raise CheckpointError(
                f"the Redis server of the journal cannot be used: {why}. Check that it runs, and "
                "the URL of the journal."
            ) from error
