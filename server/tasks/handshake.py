"""Tasks of 2025-11-25 (SEP-1686), for clients that know only that shape.

The client asks for a task with `params.task`, looks with `tasks/get`, and fetches the result with
`tasks/result`, which blocks and puts the run's questions to the client while it does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    PaginatedRequestParams,
)

from ...harness.errors import HarnessError
from ..mcp.requests import TASK_VERSION, Context, Services
from ..tools.base import TaskStarted, ToolReply
from ..tools.wait_for_run import wait_for_run
from .methods import TaskParams
from .states import (
    POLL_MS,
    TaskState,
    find_task,
    look_at,
    may_sample,
    refusal,
    task_state,
)

__all__ = ["HandshakeTasks"]

TASKS_PER_PAGE = 50
RESULT_SECONDS = 24 * 3600.0
"""How long `tasks/result` blocks at most; the client ends it sooner by cancelling the request."""

CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
Call: TypeAlias = Callable[[Context, CallToolRequestParams], Awaitable[ToolReply]]
RELATED_TASK = "io.modelcontextprotocol/related-task"


class HandshakeTasks:
    """Handlers of `tasks/*` on connections of 2025-11-25.

    Args:
        services: Where runs are.
        call: Handles a `tools/call`.
    """

    def __init__(self, services: Services, call: Call) -> None:
        self._services = services
        self._call = call

    async def middleware(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Declare the capability, and answer calls that ask for a task.

        The SDK knows the shapes of this revision but lets no handler return them.
        """
        if ctx.method == "tools/call" and _asks_for_task(ctx):
            params = CallToolRequestParams.model_validate(ctx.params)
            reply = await self._call(ctx, params)
            if not isinstance(reply, TaskStarted):
                return reply.model_dump(by_alias=True, mode="json", exclude_none=True)
            return {"task": _task(await self._find(ctx, reply.run_id))}
        result = await call_next(ctx)
        if ctx.method == "initialize" and isinstance(result, dict):
            return _declaring(result)
        return result

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Return where a task stands."""
        _require(ctx)
        return _task(await look_at(ctx, self._services, params.task_id, can_answer=True))

    async def result(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Wait for a task's result, asking the client what the run asks."""
        _require(ctx)
        await self._find(ctx, params.task_id)
        call = CallToolRequestParams(name="tasks/result")
        try:
            settled = await wait_for_run(ctx, self._services, call, params.task_id, RESULT_SECONDS)
        except HarnessError as error:
            raise refusal(self._services, params.task_id, error) from error
        state = task_state(self._services, cast("Any", settled))
        if state.error is not None:
            raise MCPError(cast("int", state.error["code"]), str(state.error["message"]))
        if state.outcome is None:
            raise MCPError(INVALID_PARAMS, f"Task {params.task_id} is {state.status}.")
        wire = state.outcome.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**wire, "_meta": {RELATED_TASK: {"taskId": params.task_id}}}

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        """Return the newest tasks, last begun first; there is one page of them.

        Raises:
            MCPError: A further page is asked for.
        """
        _require(ctx)
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "There is one page of tasks; list without a cursor.")
        runs = await self._services.journal.find_runs(limit=TASKS_PER_PAGE)
        tasks: list[dict[str, Any]] = []
        for run in runs:
            with suppress(MCPError):  # deleted meanwhile
                tasks.append(_task(await self._find(ctx, run.id)))
        return {"tasks": tasks}

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """End a task and return it; one that has ended already is an error of this revision."""
        state = await self._find(ctx, params.task_id)
        if state.status not in ("working", "input_required"):
            raise MCPError(INVALID_PARAMS, f"Task {params.task_id} is {state.status} already.")
        try:
            await self._services.runs.cancel(params.task_id, "cancelled by the client")
        except HarnessError as error:
            raise refusal(self._services, params.task_id, error) from error
        return _task(await self._find(ctx, params.task_id))

    async def _find(self, ctx: Context, task_id: str) -> TaskState:
        _require(ctx)
        # Also where nobody can be asked: what has ended in this revision may not begin again.
        can_lend = may_sample(ctx, self._services, task_id)
        return await find_task(self._services, task_id, can_answer=True, can_lend=can_lend)


def _require(ctx: Context) -> None:
    if ctx.protocol_version != TASK_VERSION:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)


def _asks_for_task(ctx: Context) -> bool:
    asked = (ctx.params or {}).get("task")
    return ctx.protocol_version == TASK_VERSION and isinstance(asked, dict)


def _task(state: TaskState) -> dict[str, Any]:
    message = {"statusMessage": state.message} if state.message else {}
    times = state.times()
    failed = state.outcome is not None and state.outcome.is_error
    identity = {"taskId": state.run.id, "status": "failed" if failed else state.status}
    return {**identity, **message, **times, "ttl": None, "pollInterval": POLL_MS}


def _declaring(result: dict[str, Any]) -> dict[str, Any]:
    if result.get("protocolVersion") != TASK_VERSION:
        return result
    capabilities = cast("dict[str, Any]", result.get("capabilities") or {})
    return {**result, "capabilities": {**capabilities, "tasks": CAPABILITY}}
