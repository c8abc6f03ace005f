"""Conversations: the threads of calls that name no thread.

All calls of a conversation work in one thread, if the server can identify the conversation. The
thread's id is computed from one of these, so nothing is stored, and every replica finds it:

- An id in the `_meta` of the call, if the client sends one. One process of Codex or VS Code has
  many conversations, and they outlive the process.
- The session of a client up to 2025-11-25, on any transport.
- The process at the other end of stdio, for a client of 2026-07-28, of which nothing else is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...harness._internal.records import record
from ...harness.errors import StaleThread, ThreadBusy
from ...harness.messages.message import new_id

__all__ = ["Conversations", "ThreadPlace"]

Context: TypeAlias = ServerRequestContext[Any, Any]

META_KEYS = ("vscode.conversationId", "threadId", "openai/session")
"""Keys in `_meta` with the conversation's id, as sent by VS Code, Codex and ChatGPT."""

Notes: TypeAlias = Sequence[str]

_T = TypeVar("_T")


@record
class ThreadPlace:
    """The thread that a call works in.

    Attributes:
        thread_id: Its id; None for a new one.
        begins: Whether to create it if it does not exist.
        is_default: Whether the caller named no thread, so that another may be used if it is busy.
    """

    thread_id: str | None = None
    begins: bool = False
    is_default: bool = False

    async def use(self, start: Callable[..., Awaitable[_T]]) -> tuple[_T, Notes]:
        """Start something on the thread; return its result, and a note for the caller.

        Args:
            start: Takes `thread_id` and `begins`, which tells whether the thread may be created.

        Raises:
            ThreadBusy, StaleThread: The thread that the caller named is in use.
        """
        try:
            return await start(thread_id=self.thread_id, begins=self.begins), ()
        except (ThreadBusy, StaleThread):  # nothing was stored; another server may be faster
            if not self.is_default:
                raise
        note = (
            f"This conversation's thread {self.thread_id} is in use, so this call has a new thread."
        )
        return await start(thread_id=None, begins=False), (note,)


class Conversations:
    """Identifies the conversations of clients."""

    def __init__(self) -> None:
        self._connections: WeakKeyDictionary[object, str] = WeakKeyDictionary()

    def of(self, ctx: Context) -> str | None:
        """Return the identity of a call's conversation; None if it cannot be identified."""
        meta = (ctx.params or {}).get("_meta")
        if isinstance(meta, Mapping):
            told = cast("Mapping[str, object]", meta)
            for key in META_KEYS:
                if isinstance(said := told.get(key), str) and said:
                    return f"{key} {said}"
        # The SDK gives handlers no public name for the connection a request came on.
        connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        if connection.session_id is not None:
            return f"session {connection.session_id}"
        if ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None
        # In 2026-07-28 each message has its own connection, but all share one outgoing stream.
        return self._connections.setdefault(connection.outbound, new_id("connection"))
