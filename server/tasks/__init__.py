"""Task states: a run's status, questions, outcome or error as a task."""

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
"""How long a client should wait between two looks; one that listens needs none."""

logger = logging.getLogger(__name__)


@record
class TaskState:
    """Status of a task. Each but `working` and `cancelled` has one of the last four fields.

    Attributes:
        run: The run it is.
        status: As the protocol names it.
        message: The newest line of its progress, or why it ended.
        questions: What it asks, while `input_required`.
        calls: What it asks the client's model, likewise.
        outcome: What the call would have returned, once `completed`; also if that is an error.
        error: A JSON-RPC error, if it `failed` without a result.
    """

    run: Run
    status: TaskStatus
    message: str | None = None
    questions: Sequence[Interrupt] = ()
    calls: Sequence[SampledCall] = ()
    outcome: CallToolResult | None = None
    error: Mapping[str, JsonValue] | None = None

    def times(self) -> dict[str, Any]:
        """Return when it was created and last changed, as both eras write it."""
        return {
            "createdAt": moment(self.run.created_at),
            "lastUpdatedAt": moment(self.run.updated_at),
        }


def may_ask(ctx: Context, services: Services) -> bool:
    """Whether the client of a request is asked what tasks ask; a read-only server asks nobody."""
    return not services.settings.read_only and way_to_ask(ctx) != "none"


def may_sample(ctx: Context, services: Services, task_id: str) -> bool:
    """Whether it is asked for its model; likewise."""
    return not services.settings.read_only and way_to_sample(ctx, task_id) != "none"


async def look_at(ctx: Context, services: Services, task_id: str, *, can_answer: bool) -> TaskState:
    """Return the status of a task, for a client that waits for it; see `find_task`.

    A task that was paused for want of a client's model goes on if this one lends its own. What
    stands in the way is logged, and the task is shown as it is.
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
    """Return the status of a task.

    Args:
        services: Where runs are.
        task_id: The run's id.
        can_answer: Whether this client can be asked; if not, a run that asks is shown as a call
            whose result says so, since nobody would ever answer its task.
        can_lend: Whether it lends its model, and is shown what that is asked.

    Raises:
        MCPError: There is no such task.
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
    """Return the error of the protocol for one of ours; it sends nobody to a withheld tool."""
    said = str(error)
    text = without(said, withheld_tools(services.settings)) or said
    return MCPError(INVALID_PARAMS, text, {"taskId": task_id})


async def _lend(services: Services, task_id: str) -> None:
    try:
        await services.runs.unpark(task_id)
        thread_id = (await services.runs.snapshot(task_id)).run.thread_id
    except UnknownRun:
        return  # which `find_task` says
    except HarnessError as error:
        logger.warning("run %s stays paused: %s", task_id, error)
        return
    services.runs.sampling.lease(thread_id)


def task_state(
    services: Services, snapshot: Snapshot, questions: Sequence[Interrupt] = ()
) -> TaskState:
    """Return the task that a run is; `questions` are those the client must answer."""
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
    """Return what the call that began the run would have returned."""
    called = snapshot.result.name if snapshot.result is not None else None
    tool = services.places().tools.get(called or "")
    if snapshot.run.kind == "drive" and tool is not None and called != "task":
        outcome = driven_result(tool, snapshot)
    else:
        outcome = run_result(snapshot)
    return without_advice(outcome, withheld_tools(services.settings))
