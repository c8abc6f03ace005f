"""Studio methods: actions that are not tools, so no model can call them.

A model acts through `tools/call` alone; what stands here is for programs that a person uses, such
as the page at `/ui`. Each looks at the caller's scopes and changes only what is theirs.
"""

from __future__ import annotations

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, RequestParams
from pydantic import Field

from ...harness.errors import HarnessError, ThreadBusy
from ...harness.messages.message import new_id
from ...harness.subagents.background.engine import delete_with_tasks, task_threads
from ..auth.caller import Scope, current_caller, owner_of
from ..mcp.requests import Context, Services
from ..runs.active_run import PARTS
from .catalogue import Catalogue

__all__ = ["DeleteParams", "ForkParams", "ThreadMethods", "require"]

_DRIVERS: tuple[Scope, ...] = ("drive", "delegate")


class ForkParams(RequestParams):
    """Parameters of `threads/fork`."""

    thread_id: str = Field(alias="threadId", min_length=1)
    checkpoint_id: str = Field(default="", alias="checkpointId")


class DeleteParams(RequestParams):
    """Parameters of `threads/delete`."""

    thread_id: str = Field(alias="threadId", min_length=1)
    confirm: str = ""


def require(services: Services, method: str, *scopes: Scope) -> None:
    """Refuse a caller who has none of some scopes, and everybody where nothing may be changed.

    Raises:
        MCPError: They may not; nothing was done.
    """
    if services.settings.read_only:
        raise MCPError(
            INVALID_REQUEST, f"{method} did nothing: this server is read-only (--read-only)."
        )
    if not any(map(current_caller.get().may, scopes)):
        needed = " or ".join(map(repr, scopes))
        raise MCPError(INVALID_REQUEST, f"{method} did nothing: it needs the scope {needed}.")


class ThreadMethods:
    """Handlers of `threads/fork` and `threads/delete`."""

    def __init__(self, services: Services, catalogue: Catalogue) -> None:
        self._services = services
        self._catalogue = catalogue

    async def fork(self, ctx: Context, params: ForkParams) -> dict[str, Any]:
        """Copy a thread's history into a new thread, up to a checkpoint; return its id.

        Runs stay with the old thread, and files on disk as they are.
        """
        require(self._services, "threads/fork", *_DRIVERS)
        thread_id, checkpoint_id = params.thread_id, params.checkpoint_id
        await self._require_owned(thread_id)
        await self._services.places.prepare(thread_id)
        agent = self._services.places(thread_id)
        owner = owner_of(thread_id)
        target = new_id(f"thr_{owner}" if owner else "thr")
        try:
            if checkpoint_id:
                await agent.get_state(thread_id, checkpoint_id)
            await agent.checkpointer.copy_thread(thread_id, target)
            if checkpoint_id:
                await agent.fork(target, checkpoint_id)
        except HarnessError as error:
            raise MCPError(INVALID_PARAMS, f"Nothing was forked: {error}") from error
        self._services.announcements.thread_changed(target, parts=PARTS, is_new=True)
        return {"threadId": target}

    async def delete(self, ctx: Context, params: DeleteParams) -> dict[str, Any]:
        """Delete a thread with its history, runs and background tasks; files on disk stay."""
        require(self._services, "threads/delete", *_DRIVERS)
        thread_id = params.thread_id
        await self._require_owned(thread_id)
        if params.confirm != thread_id:
            raise MCPError(
                INVALID_PARAMS,
                "Nothing was deleted: give the thread's id as `confirm`, too; it cannot be undone.",
            )
        try:
            async with self._services.runs.exclusive(thread_id):
                journal = self._services.places(thread_id).checkpointer
                for task in await task_threads(journal, thread_id):
                    for run in await journal.find_runs(thread_id=task, status="running", limit=1):
                        raise ThreadBusy(f"its background task works on run {run.id}; cancel it.")
                await delete_with_tasks(journal, thread_id)
        except HarnessError as error:
            raise MCPError(INVALID_REQUEST, f"Nothing was deleted: {error}") from error
        self._catalogue.forget(thread_id)
        self._services.announcements.thread_changed(thread_id, parts=PARTS)
        return {}

    async def _require_owned(self, thread_id: str) -> None:
        """Refuse threads that do not exist for the caller.

        Raises:
            MCPError: There is no such thread.
        """
        journal = self._services.journal
        if not await journal.history(thread_id, limit=1) and not await journal.find_runs(
            thread_id=thread_id, limit=1
        ):
            raise MCPError(
                INVALID_PARAMS, f"There is no thread {thread_id!r}; read threads://search."
            )
