"""States: goals, questions, status and exit codes of runs. It imports nothing slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Any, cast

from pydantic import JsonValue

from ...harness._internal.records import record

__all__ = [
    "CalledOff",
    "Exit",
    "LinkError",
    "Lost",
    "NotStarted",
    "Question",
    "RunState",
    "Task",
    "exit_code",
]

_ARGS_SHOWN = 2_000
"""The most characters of arguments in results of the server."""


class LinkError(Exception):
    """A call was refused by the server, or did not reach it."""


class Lost(LinkError):
    """The server was lost before it answered, so it may have done what was asked."""


class NotStarted(LinkError):
    """The server cannot be reached, or refused the goal; nothing was started."""


class CalledOff(NotStarted):
    """The person interrupted before the run began; nothing was started."""

    def __init__(self) -> None:
        super().__init__("Interrupted. Nothing was started.")


@record
class Task:
    """A goal with its options.

    Attributes:
        goal: What to do.
        thread_id: The thread to continue; empty for a new one.
        agent: The subagent that gets the goal; empty for the main agent.
        model: Another model; empty for the server's.
        output_schema: A JSON schema of the answer.
        limits: Limits of `tokens`, `cost` and `seconds`.
        files: Attached files, in the form that `task` takes.
    """

    goal: str
    thread_id: str = ""
    agent: str = ""
    model: str = ""
    output_schema: Mapping[str, Any] | None = None
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    files: Sequence[Mapping[str, str]] = ()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `task`, without empty ones."""
        given = {
            "goal": self.goal,
            "thread_id": self.thread_id or "new",
            "agent": self.agent,
            "model": self.model,
            "output_schema": self.output_schema,
            "limits": dict(self.limits),
            "files": [dict(one) for one in self.files],
        }
        return {name: value for name, value in given.items() if value}


@record
class Question:
    """A question that a run waits for.

    Attributes:
        id: Its id.
        text: Its text.
        asked_by: The agent that asks, after the agents that called it.
        tool: The tool to approve; empty if it is not about an approval.
        args: Its arguments as JSON.
        decisions: The allowed decisions of an approval.
        schema: The JSON schema of an answer.
        is_whole: Whether `args` is complete.
    """

    id: str
    text: str
    asked_by: str
    tool: str = ""
    args: str = ""
    decisions: Sequence[str] = ()
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_whole: bool = True

    @staticmethod
    def of(shown: Mapping[str, Any]) -> Question:
        """Return a question from the data of a result."""
        args = str(shown.get("args", ""))
        return Question(
            str(shown["id"]),
            str(shown.get("question", "")),
            str(shown.get("asked_by", "")),
            str(shown.get("tool") or ""),
            args,
            tuple(shown.get("decisions", ())),
            cast("Mapping[str, Any]", shown.get("answer_schema") or {}),
            not (args.endswith("…") and len(args) > _ARGS_SHOWN),
        )


@record
class RunState:
    """Status of a run.

    Attributes:
        run_id: The run.
        thread_id: Its thread.
        status: The server's name for it.
        answer: The agent's final words, or JSON.
        data: The answer as data, if it has a schema.
        reason: Why it failed, paused or was cancelled.
        questions: Its open questions.
        usage: Its calls, tokens and dollars.
        notes: Further notes of the server.
    """

    run_id: str
    thread_id: str
    status: str
    answer: str = ""
    data: JsonValue = None
    reason: str = ""
    questions: Sequence[Question] = ()
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notes: Sequence[str] = ()


class Exit(IntEnum):
    """Exit codes of `run` and `runs wait`."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    NEEDS_APPROVAL = 3
    LIMIT = 4
    STILL_AT_WORK = 124
    INTERRUPTED = 130
    NO_READER = 141


def exit_code(status: str, reason: str) -> Exit:
    """Return the exit code for the status of a run."""
    match status:
        case "done":
            return Exit.DONE
        case "needs_approval":
            return Exit.NEEDS_APPROVAL
        case "running" | "queued":
            return Exit.STILL_AT_WORK
        case "paused":
            return Exit.INTERRUPTED
        case _:
            return Exit.LIMIT if reason.startswith("limit") else Exit.FAILED
