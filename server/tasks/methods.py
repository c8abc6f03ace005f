"""The Tasks extension of 2026-07-28 (SEP-2663): `tasks/get`, `tasks/update`, `tasks/cancel`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    CallToolResult,
    InputResponse,
    RequestParams,
)
from pydantic import TypeAdapter, ValidationError

from ...harness.errors import HarnessError
from ..mcp.requests import Context, Services, require_tasks
from ..runs import approvals
from .states import (
    POLL_MS,
    TaskState,
    find_task,
    look_at,
    may_ask,
    may_sample,
    refusal,
)

__all__ = ["TaskMethods", "TaskParams", "TaskUpdateParams", "created", "detailed"]

_RESPONSE: TypeAdapter[InputResponse] = TypeAdapter(InputResponse)


class TaskParams(RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, Any]


class TaskMethods:
    """Handlers of `tasks/*`; each refuses a client that has not declared the extension."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Return a task with its open questions, its result or its error."""
        _check(ctx, params)
        can_answer = may_ask(ctx, self._services)
        state = await look_at(ctx, self._services, params.task_id, can_answer=can_answer)
        return detailed(state)

    async def update(self, ctx: Context, params: TaskUpdateParams) -> dict[str, Any]:
        """Take answers to some of its questions; others, and answered ones, are ignored."""
        state = await self._find(ctx, params)
        asked = {*(one.id for one in state.questions), *(one.key for one in state.calls)}
        given = params.input_responses
        responses = _responses({key: given[key] for key in asked & given.keys()})
        self._services.runs.desk.take(state.run.thread_id, responses)
        found = approvals.decisions(state.questions, responses)
        if found.problems:
            raise MCPError(INVALID_PARAMS, " ".join(found.problems), {"taskId": params.task_id})
        if found.answers:
            try:
                await self._services.runs.reply(params.task_id, found.answers)
            except HarnessError as error:
                raise refusal(self._services, params.task_id, error) from error
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """End a task; one that has ended stays as it is."""
        await self._find(ctx, params)
        try:
            await self._services.runs.cancel(params.task_id, "cancelled by the client")
        except HarnessError as error:
            raise refusal(self._services, params.task_id, error) from error
        return {}

    async def _find(self, ctx: Context, params: TaskParams) -> TaskState:
        _check(ctx, params)
        services, task_id = self._services, params.task_id
        can_answer, can_lend = may_ask(ctx, services), may_sample(ctx, services, task_id)
        return await find_task(services, task_id, can_answer=can_answer, can_lend=can_lend)


def created(state: TaskState) -> dict[str, Any]:
    """Return the result of a call that became a task."""
    return {"resultType": "task", **_flat(state)}


def _flat(state: TaskState) -> dict[str, Any]:
    message = {"statusMessage": state.message} if state.message else {}
    return {
        "taskId": state.run.id,
        "status": state.status,
        **message,
        **state.times(),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def detailed(state: TaskState) -> dict[str, Any]:
    """Return a task as `tasks/get` and `notifications/tasks` show it."""
    shown = _flat(state)
    if state.questions or state.calls:
        asked = approvals.input_required(state.questions, "", state.calls).input_requests or {}
        shown["inputRequests"] = {key: _wire(one) for key, one in asked.items()}
    if state.outcome is not None:
        shown["result"] = _wire(state.outcome)
    if state.error is not None:
        shown["error"] = dict(state.error)
    return shown


def _wire(value: Any) -> dict[str, Any]:
    wire = json.loads(value.model_dump_json(by_alias=True, exclude_none=True))
    if isinstance(value, CallToolResult):
        wire["resultType"] = "complete"
    return wire


def _responses(given: Mapping[str, Any]) -> dict[str, InputResponse]:
    try:
        return {key: _RESPONSE.validate_python(one) for key, one in given.items()}
    except ValidationError as error:
        raise MCPError(
            INVALID_PARAMS, f"inputResponses: {error.errors()[0]['msg']}. Nothing was stored."
        ) from error


def _check(ctx: Context, params: TaskParams) -> None:
    require_tasks(ctx)
    _check_header(ctx, params.task_id)


def _check_header(ctx: Context, task_id: str) -> None:
    """Compare `Mcp-Name` with the body (SEP-2243); the SDK does so for its own methods only.

    Such headers are Streamable HTTP's, which always has `Mcp-Method`.
    """
    headers = getattr(ctx.request, "headers", None)
    if headers is None or "mcp-method" not in headers:
        return
    named = (headers.get("mcp-name") or "").strip()
    if named != task_id:
        raise MCPError(
            HEADER_MISMATCH,
            f"The header Mcp-Name must be the taskId {task_id!r}; it is {named!r}.",
        )
