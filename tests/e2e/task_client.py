"""A client with support for tasks, built on the official client's extensions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
from mcp import Client
from mcp.client.extension import (
    ClaimContext,
    ClientExtension,
    NotificationBinding,
    ResultClaim,
)
from mcp.types import CallToolResult, Request, Result, SubscriptionFilter
from pydantic import BaseModel, ConfigDict, TypeAdapter

ANYTHING: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Created(Result):
    """The result of a call that was turned into a task."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"  # type: ignore[assignment]
    task_id: str
    status: str


class TaskRequest(Request[dict[str, Any], str]):
    """A request of the extension."""

    name_param = "taskId"
    method: str
    params: dict[str, Any]


class TaskChange(BaseModel):
    """A task in a notification."""

    model_config = ConfigDict(extra="allow")
    taskId: str  # noqa: N815  the wire's name
    status: str


class Tasks(ClientExtension):
    """Client extension that polls a task, answers its questions, and returns its result.

    Args:
        answer: Converts the open `inputRequests` to the responses to send.
        stop_at: Status at which polling ends; the result is then an error.
    """

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, answer: Answer | None = None, stop_at: str | None = None) -> None:
        self.created: list[Created] = []
        self.seen: list[str] = []
        self.changes: list[TaskChange] = []
        self.changed: Callable[[TaskChange], Awaitable[None]] | None = None
        self._answer = answer
        self._stop_at = stop_at

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    def notifications(self) -> list[NotificationBinding[Any]]:
        binding = NotificationBinding(
            method="notifications/tasks", params_type=TaskChange, handler=self._hear
        )
        return [binding]

    async def _hear(self, change: TaskChange) -> None:
        self.changes.append(change)
        if self.changed is not None:
            await self.changed(change)

    async def hear_until(self, status: str, client: Client, *task_ids: str) -> None:
        """Listen to tasks until the last of them has a status."""
        reached = anyio.Event()

        async def changed(change: TaskChange) -> None:
            if (change.taskId, change.status) == (task_ids[-1], status):
                reached.set()

        self.changed = changed
        async with anyio.create_task_group() as group:
            group.start_soon(listen_to, client, *task_ids)
            await reached.wait()
            group.cancel_scope.cancel()

    async def _resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        self.created.append(created)
        while True:
            task = await ask(context.session, "tasks/get", created.task_id)
            self.seen.append(task["status"])
            if task["status"] == "completed":
                return CallToolResult.model_validate(task["result"])
            if task["status"] in ("failed", "cancelled", self._stop_at):
                return CallToolResult(content=[], structured_content=task, is_error=True)
            if task["status"] == "input_required" and self._answer is not None:
                answers = self._answer(task["inputRequests"])
                await ask(context.session, "tasks/update", created.task_id, inputResponses=answers)
            await anyio.sleep(0.02)


async def ask(session: Any, method: str, task_id: str, **params: Any) -> dict[str, Any]:
    """Send one request about a task."""
    request = TaskRequest(method=method, params={"taskId": task_id, **params})
    return await session.send_request(request, ANYTHING)


async def listen_to(client: Client, *task_ids: str) -> None:
    """Listen to tasks until cancelled."""
    shown = SubscriptionFilter.model_validate({"taskIds": list(task_ids)})
    params = {"notifications": shown.model_dump(by_alias=True, exclude_none=True)}
    request = Request[dict[str, Any], str](method="subscriptions/listen", params=params)
    await client.session.send_request(request, ANYTHING)
