"""Task states: the status, questions, result or error of a run, as an MCP task."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult
from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import Interrupt, Run
from ...harness.errors import HarnessError, UnknownRun
from ..approvals.questions import way_to_ask
from ..mcp.media import drop_links
from ..mcp.requests import Context, Services
from ..results import moment
from ..runs.accounts import Snapshot
from ..sampling.client_model import way_to_sample
from ..sampling.sampled_call import SampledCall
from ..settings.toolsets import withheld_tools, without
from ..tools import without_advice
from ..tools.driven import driven_result
from ..tools.run_results import run_result

__all__ = [
    "POLL_MS",
    "TaskState",
    "TaskStatus",
    "find_task",
    "look_at",
    "may_ask",
    "may_sample",
    "refusal",
    "task_state",
]


TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

POLL_MS = 1_000
"""Recommended poll interval in milliseconds; clients that subscribe need not poll."""

logger = logging.getLogger(__name__)


@record
class TaskState:
    """State of a task. One of the last four fields is set, except if `working` or `cancelled`.

    Attributes:
        run: Run of the task.
        status: Status in the protocol's terms.
        message: Newest line of progress, or why the task ended.
        questions: Open questions, with the status `input_required`.
        calls: Open calls of the client's model, with the status `input_required`.
        outcome: Result of the tool call once `completed`, even if it is an error result.
        error: JSON-RPC error if the task `failed` without a result.
    """

    run: Run
    status: TaskStatus
    message: str | None = None
    questions: Sequence[Interrupt] = ()
    calls: Sequence[SampledCall] = ()
    outcome: CallToolResult | None = None
    error: Mapping[str, JsonValue] | None = None

    def times(self) -> dict[str, Any]:
        """Return the times of creation and last change; the format is the same in both eras."""
        return {
            "createdAt": moment(self.run.created_at),
            "lastUpdatedAt": moment(self.run.updated_at),
        }


def may_ask(ctx: Context, services: Services) -> bool:
    """Return whether tasks may ask this client questions; never on a read-only server."""
    return not services.settings.read_only and way_to_ask(ctx) != "none"


def may_sample(ctx: Context, services: Services, task_id: str) -> bool:
    """Return whether a task may use this client's model; never on a read-only server."""
    return not services.settings.read_only and way_to_sample(ctx, task_id) != "none"


async def look_at(ctx: Context, services: Services, task_id: str, *, can_answer: bool) -> TaskState:
    """Return the state of a task for a client that waits for it; see `find_task`.

    If a task is paused because it needs a client's model, and this client offers one, the task
    continues. If that fails, the reason is logged and the task is returned as it is.
    """
    can_lend = may_sample(ctx, services, task_id)
    if can_lend:
        await _lend(services, task_id)
    state = await find_task(services, task_id, can_answer=can_answer, can_lend=can_lend)
    if state.outcome is not None:
        drop_links(state.outcome)
    return state


async def find_task(
    services: Services, task_id: str, *, can_answer: bool, can_lend: bool = False
) -> TaskState:
    """Return the state of a task.

    Args:
        services: The server's services.
        task_id: Id of the run.
        can_answer: Whether this client can answer questions. If not, a run with questions is
            returned as completed, with a result that explains them: the task would never end.
        can_lend: Whether the client offers its model, and gets the calls for it.

    Raises:
        MCPError: The task does not exist.
    """
    try:
        snapshot = await services.runs.snapshot(task_id)  # the caller's own, or unknown
    except UnknownRun as error:
        raise refusal(services, task_id, error) from error
    if not can_lend:
        snapshot = replace(snapshot, calls=())
    questions = snapshot.questions
    if snapshot.run.status == "running":
        questions = await services.runs.questions(task_id)
    return task_state(services, snapshot, questions if can_answer else ())


def refusal(services: Services, task_id: str, error: HarnessError) -> MCPError:
    """Return a protocol error for our exception, without advice to use a withheld tool."""
    said = str(error)
    text = without(said, withheld_tools(services.settings)) or said
    return MCPError(INVALID_PARAMS, text, {"taskId": task_id})


async def _lend(services: Services, task_id: str) -> None:
    try:
        await services.runs.unpark(task_id)
        thread_id = (await services.runs.snapshot(task_id)).run.thread_id
    except UnknownRun:
        return  # `find_task` reports it
    except HarnessError as error:
        logger.warning("run %s stays paused: %s", task_id, error)
        return
    services.runs.sampling.lease(thread_id)


def task_state(
    services: Services, snapshot: Snapshot, questions: Sequence[Interrupt] = ()
) -> TaskState:
    """Return the task state of a run; `questions` are those that the client must answer."""
    run = snapshot.run
    if questions or snapshot.calls:
        message = questions[0].message if questions else services.runs.doing(run.id)
        return TaskState(run, "input_required", message, questions=questions, calls=snapshot.calls)
    match run.status:
        case "queued" | "running":
            doing = snapshot.waits_for or services.runs.doing(run.id)
            return TaskState(run, "working", doing)
        case "cancelled":
            return TaskState(run, "cancelled", run.reason)
        case "failed" if run.kind == "drive" and snapshot.result is None:
            why = run.reason or "the call has no result"
            error: dict[str, JsonValue] = {"code": INTERNAL_ERROR, "message": why}
            return TaskState(run, "failed", why, error=error)
        case _:
            return TaskState(run, "completed", run.reason, outcome=_outcome(services, snapshot))


def _outcome(services: Services, snapshot: Snapshot) -> CallToolResult:
    """Return the result of the tool call that started the run."""
    called = snapshot.result.name if snapshot.result is not None else None
    tool = services.places().tools.get(called or "")
    if snapshot.run.kind == "drive" and tool is not None and called != "task":
        outcome = driven_result(tool, snapshot)
    else:
        outcome = run_result(snapshot)
    return without_advice(outcome, withheld_tools(services.settings))
