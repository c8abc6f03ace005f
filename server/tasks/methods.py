"""Methods for tasks (`tasks/*`) in both protocol eras.

- 2026-07-28, the Tasks extension (SEP-2663): `tasks/get`, `tasks/update`, `tasks/cancel`.
- 2025-11-25 (SEP-1686), for clients that know only that shape: the client asks for a task with
  `params.task`, polls with `tasks/get`, and fetches the result with `tasks/result`. This method
  blocks, and asks the client the run's questions meanwhile.

Some methods have the same name in both eras but different shapes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, cast

from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    CallToolResult,
    InputResponse,
    PaginatedRequestParams,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from ...harness.errors import HarnessError
from ..approvals.questions import decisions, input_required
from ..mcp.media import drop_links
from ..mcp.requests import TASK_VERSION, TASKS_EXTENSION, Context, Services, require_tasks
from ..sampling.client_model import RELATED_TASK
from ..sampling.sampled_call import is_call
from ..tools import TaskStarted, ToolReply
from ..tools.wait_for_run import wait_for_run
from . import POLL_MS, TaskState, find_task, look_at, may_ask, may_sample, refusal, task_state

__all__ = [
    "CAPABILITY",
    "HandshakeTasks",
    "TaskMethods",
    "TaskParams",
    "TaskUpdateParams",
    "add_tasks",
    "created",
    "detailed",
]


_RESPONSE: TypeAdapter[InputResponse] = TypeAdapter(InputResponse)


class TaskParams(RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, Any]


class TaskMethods:
    """Handlers of `tasks/*`; they refuse clients that have not declared the extension."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Return a task with its open questions, its result or its error."""
        _check(ctx, params)
        can_answer = may_ask(ctx, self._services)
        state = await look_at(ctx, self._services, params.task_id, can_answer=can_answer)
        return detailed(state)

    async def update(self, ctx: Context, params: TaskUpdateParams) -> dict[str, Any]:
        """Store answers to open questions; answers to other questions are ignored."""
        state = await self._find(ctx, params)
        asked = {*(one.id for one in state.questions), *filter(is_call, params.input_responses)}
        given = params.input_responses
        responses = _responses({key: given[key] for key in asked & given.keys()})
        self._services.runs.sampling.take(state.run.thread_id, responses)
        found = decisions(state.questions, responses)
        if found.problems:
            raise MCPError(INVALID_PARAMS, " ".join(found.problems), {"taskId": params.task_id})
        if found.answers:
            try:
                await self._services.runs.reply(params.task_id, found.answers, how="task")
            except HarnessError as error:
                raise refusal(self._services, params.task_id, error) from error
        return {}

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """End a task; a task that has ended stays unchanged."""
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


def created(state: TaskState, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the result of a call that became a task; its status message starts with the notes."""
    return {"resultType": "task", **_flat(_noted(state, notes))}


def _noted(state: TaskState, notes: Sequence[str]) -> TaskState:
    return replace(state, message=" ".join([*notes, state.message or ""]).strip() or None)


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
    """Return a task in the shape of `tasks/get` and `notifications/tasks`."""
    shown = _flat(state)
    if state.questions or state.calls:
        asked = input_required(state.questions, "", state.calls).input_requests or {}
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
    """Check that `Mcp-Name` matches the body (SEP-2243); the SDK checks only its own methods.

    Only Streamable HTTP has these headers, and always `Mcp-Method`.
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


TASKS_PER_PAGE = 50
RESULT_SECONDS = 24 * 3600.0
"""Maximum time that `tasks/result` blocks; a client can cancel the request earlier."""

CAPABILITY: Mapping[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
"""Capability that the handshake of this revision declares."""

Call: TypeAlias = Callable[[Context, CallToolRequestParams], Awaitable[ToolReply]]


class HandshakeTasks:
    """Handlers of `tasks/*` on connections of 2025-11-25.

    Args:
        services: The server's services.
        call: Handler of `tools/call`.
    """

    def __init__(self, services: Services, call: Call) -> None:
        self._services = services
        self._call = call

    async def call(self, ctx: Context) -> HandlerResult:
        """Answer a `tools/call` that asks for a task.

        The SDK knows the shapes of this revision, but its handlers cannot return them.
        """
        params = CallToolRequestParams.model_validate(ctx.params)
        reply = await self._call(ctx, params)
        if not isinstance(reply, TaskStarted):
            return reply.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {"task": _task(_noted(await self._find(ctx, reply.run_id), reply.notes))}

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Return the status of a task."""
        _require(ctx)
        return _task(await look_at(ctx, self._services, params.task_id, can_answer=True))

    async def result(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Wait for a task's result; meanwhile ask the client the run's questions."""
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
        drop_links(state.outcome)
        wire = state.outcome.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**wire, "_meta": {RELATED_TASK: {"taskId": params.task_id}}}

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        """Return the newest tasks, newest first, on a single page.

        Raises:
            MCPError: The client requests another page.
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
        """End a task and return it; in this revision it is an error if it has already ended."""
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
        # Even if the client cannot be asked: in this revision an ended task must not restart.
        can_lend = may_sample(ctx, self._services, task_id)
        return await find_task(self._services, task_id, can_answer=True, can_lend=can_lend)


def _require(ctx: Context) -> None:
    if ctx.protocol_version != TASK_VERSION:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)


def _task(state: TaskState) -> dict[str, Any]:
    message = {"statusMessage": state.message} if state.message else {}
    times = state.times()
    failed = state.outcome is not None and state.outcome.is_error
    identity = {"taskId": state.run.id, "status": "failed" if failed else state.status}
    return {**identity, **message, **times, "ttl": None, "pollInterval": POLL_MS}


P = TypeVar("P", bound=RequestParams)
Method: TypeAlias = Callable[[Context, P], Awaitable[dict[str, Any]]]


def add_tasks(server: Server[Any], services: Services, old: HandshakeTasks) -> None:
    """Declare the extension and add `tasks/*`."""
    new = TaskMethods(services)
    cancel = _by_era(_writing(services, new.cancel), _writing(services, old.cancel))
    update = _by_era(_writing(services, new.update), None)
    server.extensions[TASKS_EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, _by_era(new.get, old.get))
    server.add_request_handler("tasks/cancel", TaskParams, cancel)
    server.add_request_handler("tasks/update", TaskUpdateParams, update)
    server.add_request_handler("tasks/result", TaskParams, _by_era(None, old.result))
    server.add_request_handler("tasks/list", PaginatedRequestParams, _by_era(None, old.list))


def _writing(services: Services, method: Method[P]) -> Method[P]:
    """Return the method with a check that refuses it on a read-only server."""

    async def handle(ctx: Context, params: P) -> dict[str, Any]:
        if services.settings.read_only:
            raise MCPError(INVALID_REQUEST, "This server is read-only; nothing was done.")
        return await method(ctx, params)

    return handle


def _by_era(modern: Method[P] | None, handshake: Method[P] | None) -> Method[P]:
    async def handle(ctx: Context, params: P) -> dict[str, Any]:
        method = modern if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else handshake
        if method is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        return await method(ctx, params)

    return handle
