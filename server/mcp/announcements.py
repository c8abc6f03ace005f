"""Announcements: tells clients of both protocol eras what changed.

Clients of 2026-07-28 listen on the subscription bus, older ones on their connection. Changes of
threads are collected for a moment and sent in one go, because a run commits many steps per second
and a client that is told reads everything again.

Tools are always the same ones; only what `task` says of the subagents there are changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import anyio
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    SubscriptionBus,
    ToolsListChanged,
)

from ..auth.caller import owner_of
from ..runs.active_run import ThreadPart
from .sessions import SessionRegistry
from .uris import THREADS_URI, moved_uri, thread_uri, threads_uri

__all__ = ["Announcements"]

COLLECT_SECONDS = 0.1
"""How long changes of threads are collected before they are announced."""

logger = logging.getLogger(__name__)


class Announcements:
    """Sends change notices to clients of both eras.

    Args:
        bus: Reaches clients of 2026-07-28; a bus over several processes has the same two methods.
        sessions: The connections of older clients.
    """

    def __init__(
        self, bus: SubscriptionBus | None = None, sessions: SessionRegistry | None = None
    ) -> None:
        self.bus: SubscriptionBus = bus or InMemorySubscriptionBus()
        self.sessions = SessionRegistry() if sessions is None else sessions
        self._changed: dict[str, set[str]] = {}  # by thread, as in the URIs of its resources
        self._new_owners: set[str] = set()
        self._wake = anyio.Event()

    async def menus_changed(self, *, tools: bool) -> None:
        """Skills or subagents were added, edited or removed: so were prompts and resources.

        Args:
            tools: Whether they were subagents, which the description of `task` lists.
        """
        if tools:
            await self.bus.publish(ToolsListChanged())
            self.sessions.tools_changed()
        await self.bus.publish(PromptsListChanged())
        await self.bus.publish(ResourcesListChanged())
        self.sessions.prompts_changed()
        self.sessions.resources_changed()

    async def resource_changed(self, uri: str) -> None:
        """One resource has other content now."""
        await self.bus.publish(ResourceUpdated(uri=uri))
        self.sessions.resource_updated(uri)

    def thread_changed(
        self,
        thread_id: str,
        *,
        parts: Iterable[ThreadPart] = (),
        files: Iterable[str] = (),
        is_new: bool = False,
    ) -> None:
        """Note that something happened on a thread; `run` announces it soon.

        Args:
            thread_id: The thread.
            parts: What of it has other content now; nothing if only a run's record changed.
            files: Paths of files that were written, which changes the listing too.
            is_new: Whether this is its first step.
        """
        changed = self._changed.setdefault(thread_id, set())
        changed.update(parts)
        for path in files:
            changed.update(("files", f"files{path}"))
        if is_new:
            self._new_owners.add(owner_of(thread_id))
        self._wake.set()

    async def run(self) -> None:
        """Announce what `thread_changed` notes, and send all notices; never returns."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.sessions.run)
            while True:
                await self._wake.wait()
                await anyio.sleep(COLLECT_SECONDS)
                self._wake = anyio.Event()
                try:
                    await self._announce()
                except Exception:
                    logger.exception("a change was not announced to every client")

    async def _announce(self) -> None:
        changed, self._changed = self._changed, {}
        new_owners, self._new_owners = self._new_owners, set()
        for owner in new_owners:
            if not owner:  # listeners of 2026-07-28 cannot be told apart by it; they have the list
                await self.bus.publish(ResourcesListChanged())
            self.sessions.resources_changed(owner)
        for owner in {owner_of(thread_id) for thread_id in changed}:
            await self.bus.publish(ResourceUpdated(uri=threads_uri(owner)))
            self.sessions.resource_updated(THREADS_URI, owner)
        for thread_id, parts in changed.items():
            await self.bus.publish(ResourceUpdated(uri=moved_uri(thread_id)))
            for part in sorted(parts):
                await self.resource_changed(thread_uri(thread_id, part))
