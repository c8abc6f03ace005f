"""Tool cache: returns a stored result for identical arguments."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from .._internal.records import record
from ..messages.message import Content
from ..tools.tool import CachePolicy, Tool, ToolResult
from .base import Cache
from .entries import Entries
from .keys import tool_key

__all__ = ["ToolCache"]


@record
class _Stored:
    """The part of a result that is the same whoever asks."""

    content: Content
    artifact: JsonValue = None


class ToolCache:
    """Results by `tool_key`.

    For tools whose result follows from their arguments alone: not from who is asking, from the
    thread's state or files, or from the moment. The cache makes no difference between callers. A
    failed cache is logged once and never fails a run. Identical calls at the same moment all run,
    and the last result stays.

    Args:
        cache: Where results are kept.
    """

    def __init__(self, cache: Cache) -> None:
        self._entries: Entries[_Stored] = Entries(cache, _Stored)

    def key(self, tool: Tool, args: Mapping[str, JsonValue]) -> str:
        """Return the `tool_key` of a call, made as the tool's `CachePolicy` says."""
        policy = tool.cacheable
        return tool_key(tool.name, args, policy.key if isinstance(policy, CachePolicy) else None)

    async def get(self, key: str) -> ToolResult | None:
        """Return the result, or None."""
        stored = await self._entries.get(key)
        return None if stored is None else ToolResult(stored.content, stored.artifact)

    async def set(self, key: str, result: ToolResult, policy: CachePolicy | bool = True) -> None:
        """Store a result, unless it is an error or changes state: that must happen each time.

        Args:
            key: The key of the call.
            result: What the tool returned.
            policy: `Tool.cacheable`; says how long the result may be used, and False stores
                nothing.
        """
        changes_state = result.update or result.writes
        if policy is False or result.status != "success" or changes_state:
            return
        ttl = policy.ttl if isinstance(policy, CachePolicy) else None
        await self._entries.set(key, _Stored(result.content, result.artifact), ttl)
