"""What a run looks like as a task: a status, and its questions, its outcome or its error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult
from pydantic import JsonValue

from harness.checkpoint.base import Interrupt, Run
from harness.errors import UnknownRun
from server.results import moment
from server.runs import Snapshot
from server.services import Services
from server.tools.driven import driven_result
from server.tools.run_results import run_result

__all__ = ["POLL_MS", "TaskState", "TaskStatus", "find_task", "task_state"]

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]

POLL_MS = 1_000
"""How long a client should wait between two looks; one that listens needs none."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where a task stands. Each status but `working` and `cancelled` has one of the last three.

    Attributes:
        run: The run it is.
        status: As the protocol names it.
        message: The newest line of its progress, or why it ended.
        questions: What it asks, while `input_required`.
        outcome: What the call would have returned, once `completed`; also if that is an error.
        error: A JSON-RPC error, if it `failed` without a result.
    """

    run: Run
    status: TaskStatus
    message: str | None = None
    questions: Sequence[Interrupt] = ()
    outcome: CallToolResult | None = None
    error: Mapping[str, JsonValue] | None = None

    def times(self) -> dict[str, Any]:
        """Return when it was created and last changed, as both eras write it."""
        return {
            "createdAt": moment(self.run.created_at),
            "lastUpdatedAt": moment(self.run.updated_at),
        }


async def find_task(services: Services, task_id: str, *, can_answer: bool) -> TaskState:
    """Return where a task stands.

    Args:
        services: Where runs are.
        task_id: The run's id.
        can_answer: Whether this client can be asked; if not, a run that asks is shown as a call
            whose result says so, since nobody would ever answer its task.

    Raises:
        MCPError: There is no such task.
    """
    try:
        snapshot = await services.runs.snapshot(task_id)  # the caller's own, or unknown
    except UnknownRun as error:
        raise MCPError(INVALID_PARAMS, str(error), {"taskId": task_id}) from error
    questions = snapshot.questions
    if snapshot.run.status == "running":
        questions = await services.runs.questions(task_id)
    return task_state(services, snapshot, questions if can_answer else ())


def task_state(
    services: Services, snapshot: Snapshot, questions: Sequence[Interrupt] = ()
) -> TaskState:
    """Return the task that a run is; `questions` are those the client shall answer."""
    run = snapshot.run
    if questions:
        return TaskState(run, "input_required", questions[0].message, questions=questions)
    match run.status:
        case "running":
            return TaskState(run, "working", services.runs.doing(run.id))
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
    tool = services.agent().tools.get(called or "")
    if snapshot.run.kind == "drive" and tool is not None and called != "task":
        return driven_result(tool, snapshot)
    return run_result(snapshot)
