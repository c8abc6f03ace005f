"""`notifications/tasks` on listen streams: sends whole tasks to clients that subscribed by id."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import anyio
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    ListenHandler,
    ResourceUpdated,
    ServerEvent,
)
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    Notification,
    ResourceUpdatedNotification,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    ToolListChangedNotification,
)

from ...harness._internal.records import record
from ...harness.errors import JournalAway
from ..auth.caller import current_caller
from ..mcp.agents_draft import AGENTS_EXTENSION, AgentListChanged
from ..mcp.requests import Context, Services, has_extension, require_tasks
from ..mcp.sessions import MAX_WATCHED
from ..mcp.uris import OWN_URIS, may_watch, moved_uri, owned_uri
from . import TaskState, look_at, may_ask
from .methods import detailed

__all__ = ["TaskListenHandler"]

MAX_TASKS = 100
"""Maximum number of tasks per stream."""


LOOK_SECONDS = 3.0
"""Interval for reading the journal, in case another process changed it or deleted a thread."""

logger = logging.getLogger(__name__)


class TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """Notification with the current state of a task."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class TaskListenHandler(ListenHandler):
    """Handler of `subscriptions/listen` that adds `taskIds` and `agentsListChanged` to the SDK.

    The list of agents changes together with the list of tools, because `task` names all agents.
    """

    def __init__(self, services: Services) -> None:
        super().__init__(services.announcements.bus)
        self._services = services

    async def __call__(
        self, ctx: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream until the client ends it.

        Raises:
            MCPError: The client has not declared the extension, the ids are not a list of tasks,
                or the thread of a task was deleted meanwhile.
        """
        params, roster = _own(params), None
        if self._takes_roster(ctx, params):
            roster = _Roster(tools=bool(params.notifications.tools_list_changed))
            with_tools = params.notifications.model_copy(update={"tools_list_changed": True})
            params = params.model_copy(update={"notifications": with_tools})
        wanted = _task_ids(ctx)
        if not wanted:
            session = cast("ServerSession", _OwnSession(ctx.session, (), anyio.Event(), roster))
            return await super().__call__(replace(ctx, session=session), params)
        require_tasks(ctx)
        watch = _Watch(self._services, ctx, wanted)
        await watch.find_threads()
        unsubscribe = self._services.announcements.bus.subscribe(watch.hear)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch.run, tasks.cancel_scope)
                own = _OwnSession(ctx.session, wanted, watch.begun, roster)
                session = cast("ServerSession", own)
                result = await super().__call__(replace(ctx, session=session), params)
                tasks.cancel_scope.cancel()
                return result
        finally:
            unsubscribe()
        assert watch.gone is not None  # nothing else ends the group from within
        raise watch.gone

    def _takes_roster(self, ctx: Context, params: SubscriptionsListenRequestParams) -> bool:
        """Return whether to report changes of the list of agents, for clients of the draft."""
        asked = (params.notifications.model_extra or {}).get("agentsListChanged") is True
        offered = "agents" in self._services.settings.experimental
        return asked and offered and has_extension(ctx, AGENTS_EXTENSION)


@record
class _Roster:
    """A stream that reports changes of the list of agents.

    Attributes:
        tools: Whether it also reports changes of the list of tools.
    """

    tools: bool


def _own(params: SubscriptionsListenRequestParams) -> SubscriptionsListenRequestParams:
    """Return the client's filter with internal URIs, without resources it may not watch.

    Raises:
        MCPError: The filter has more resources than one stream may watch.
    """
    owner = current_caller.get().owner
    asked = params.notifications.resource_subscriptions or ()
    if len(asked) > MAX_WATCHED:
        raise MCPError(INVALID_PARAMS, f"A stream may watch at most {MAX_WATCHED} resources.")
    watched = [owned_uri(uri, owner) for uri in asked if may_watch(uri)]
    shown = params.notifications.model_copy(update={"resource_subscriptions": watched})
    return params.model_copy(update={"notifications": shown})


class _OwnSession:
    """A session that sends the client's own URIs, and signals when the acknowledgement is sent.

    The acknowledgement also contains the tasks and the subscription to the list of agents.
    """

    def __init__(
        self,
        session: ServerSession,
        ids: Sequence[str],
        begun: anyio.Event,
        roster: _Roster | None,
    ) -> None:
        self._session = session
        self._ids = ids
        self._begun = begun
        self._roster = roster

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send a notification of the SDK's handler."""
        if isinstance(notification, SubscriptionsAcknowledgedNotification):
            shown = notification.params.notifications
            uris = [uri.partition("#")[0] for uri in shown.resource_subscriptions or ()]
            more: dict[str, Any] = {"taskIds": list(self._ids)} if self._ids else {}
            if self._roster is not None:
                more["agentsListChanged"] = True
                more["tools_list_changed"] = True if self._roster.tools else None
            shown = shown.model_copy(update={"resource_subscriptions": uris or None, **more})
            given = notification.params.model_copy(update={"notifications": shown})
            notification = notification.model_copy(update={"params": given})
        elif isinstance(notification, ResourceUpdatedNotification):
            uri = str(notification.params.uri).partition("#")[0]
            if uri in OWN_URIS:
                given = notification.params.model_copy(update={"uri": uri})
                notification = notification.model_copy(update={"params": given})
        if self._roster is not None and isinstance(notification, ToolListChangedNotification):
            meta = notification.params.meta if notification.params is not None else None
            changed = cast("Any", AgentListChanged(params={"_meta": meta}))
            await self._session.send_notification(changed, related_request_id)
            if not self._roster.tools:
                return
        await self._session.send_notification(notification, related_request_id)
        self._begun.set()


class _Watch:
    """Sends tasks whenever they have changed."""

    def __init__(self, services: Services, ctx: Context, ids: Sequence[str]) -> None:
        self.begun = anyio.Event()
        self.gone: MCPError | None = None
        self._services = services
        self._ctx = ctx
        self._can_answer = may_ask(ctx, services)
        self._ids = ids
        self._places: set[str] = set()
        self._sent: dict[str, Mapping[str, Any]] = {}
        self._seen: dict[str, tuple[str, float]] = {}
        self._wake = anyio.Event()

    async def find_threads(self) -> None:
        """Find the threads of the tasks, to know which events affect them.

        Raises:
            MCPError: A task is unknown.
        """
        for task_id in self._ids:
            state = await self._find(task_id)
            self._places.add(moved_uri(state.run.thread_id))

    def hear(self, event: ServerEvent) -> None:
        """Handle an event: wake up if one of the threads has changed."""
        if isinstance(event, ResourceUpdated) and event.uri in self._places:
            self._wake.set()

    async def run(self, stream: anyio.CancelScope) -> None:
        """Send each task once and then after each change; end the stream if a task is deleted."""
        await self.begun.wait()
        due = self._ids
        while True:
            for task_id in due:
                try:
                    await self._send(task_id)
                except MCPError as gone:  # its thread was deleted; the client may subscribe again
                    self.gone = gone
                    stream.cancel()
                    return
                except JournalAway as error:  # it is sent when the journal is back
                    logger.debug("task %s cannot be read now: %s", task_id, error)
                    self._seen.pop(task_id, None)
            due = await self._due()

    async def _due(self) -> Sequence[str]:
        """Wait for a possible change; return the ids of the tasks that may have changed."""
        while True:
            with anyio.move_on_after(LOOK_SECONDS):
                await self._wake.wait()
                self._wake = anyio.Event()
                return self._ids
            changed = [one for one in self._ids if await self._has_changed(one)]
            if changed:
                return changed

    async def _has_changed(self, task_id: str) -> bool:
        try:
            run = await self._services.journal.run(task_id)
        except JournalAway:
            return False
        return run is None or (run.status, run.updated_at) != self._seen.get(task_id)

    async def _find(self, task_id: str) -> TaskState:
        return await look_at(self._ctx, self._services, task_id, can_answer=self._can_answer)

    async def _send(self, task_id: str) -> None:
        state = await self._find(task_id)
        self._seen[task_id] = (state.run.status, state.run.updated_at)
        task = detailed(state)
        if task == self._sent.get(task_id):
            return
        self._sent[task_id] = task
        request = self._ctx.request_id
        shown = {**task, "_meta": {SUBSCRIPTION_ID_META_KEY: request}}
        notification = cast("Any", TaskNotification(params=shown))
        await self._ctx.session.send_notification(notification, related_request_id=request)


def _task_ids(ctx: Context) -> list[str]:
    given = cast("Mapping[str, Any]", (ctx.params or {}).get("notifications") or {}).get("taskIds")
    if given is None:
        return []
    ids = cast("list[object]", given) if isinstance(given, list) else [None]
    if len(ids) > MAX_TASKS or not all(isinstance(one, str) for one in ids):
        raise MCPError(INVALID_PARAMS, f"taskIds must be a list of at most {MAX_TASKS} task ids.")
    return [*dict.fromkeys(cast("list[str]", ids))]
