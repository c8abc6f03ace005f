"""Run results: the same shape from `task`, `wait`, `reply` and `cancel`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, cast, get_args

from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue

from ...harness.checkpoint.base import Interrupt, RunStatus
from ...harness.errors import CheckpointError
from ...harness.limits.carried_limits import used_by
from ...harness.limits.limits import Used
from ..results import Answer
from ..runs.approvals import EventPage, show
from ..runs.snapshot import Snapshot
from ..sampling.queue import is_parked

__all__ = ["RUN_SCHEMA", "example", "question_line", "run_result", "with_notes"]

_Reply = TypeVar("_Reply")

MAX_ANSWER_CHARS = 6_000

MAX_TWICE_CHARS = 2_000
"""Characters of a structured answer that is shown as text, too, in the structured content."""

_TEXT: JsonValue = {"type": "string"}

RUN_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "thread_id": _TEXT,
        "status": {
            "type": "string",
            "enum": [*get_args(RunStatus)],
        },
        "answer": {
            "type": "string",
            "description": "The agent's final words; those that were cut off, with a mark, when it "
            "failed for that",
        },
        "answer_data": {
            "type": "object",
            "description": "The answer as JSON, where it has a schema",
        },
        "task_id": _TEXT,
        "reason": {
            "type": "string",
            "description": "Why it failed, paused, was cancelled, or cannot go on",
        },
        "doing": {"type": "string", "description": "What it does right now"},
        "pending": {
            "type": "array",
            "description": "Questions that reply answers",
            "items": {"type": "object"},
        },
        "events": {
            "type": "array",
            "description": "What happened, oldest first, when asked for",
            "items": {"type": "object"},
        },
        "events_next": {"type": "integer", "description": "events_after for the next page"},
        "events_more": {"type": "boolean", "description": "Whether there is one now"},
        "events_missing": {
            "type": "integer",
            "description": "Events before these that are no longer kept",
        },
        "usage": {
            "type": "object",
            "description": "Calls, tokens and US dollars used, and a line per agent and model",
        },
        "notes": {
            "type": "array",
            "description": "What became of answers that were not taken",
            "items": _TEXT,
        },
        "next": {"type": "string", "description": "What to do now"},
    },
    "required": ["run_id", "thread_id", "status", "next"],
}


def run_result(
    snapshot: Snapshot,
    *,
    answer_offset: int = 0,
    events: EventPage | None = None,
    doing: str | None = None,
) -> CallToolResult:
    """Return a run's result; a failed run is flagged as an error for clients that look at that.

    `doing` is a line about what it does right now, if it is running and that is known.
    """
    snapshot = _as_it_went(snapshot)
    run = snapshot.run
    data: dict[str, JsonValue] = {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "status": run.status,
    }
    lines = [f"Run {run.id} on thread {run.thread_id}: {run.status}."]
    following = _next(snapshot)
    if run.status == "done" or (run.status == "failed" and run.answer):
        room = MAX_ANSWER_CHARS if events is None else MAX_ANSWER_CHARS // 2
        facts, said, following = _answer_facts(snapshot, answer_offset, room, following)
        data |= facts
        lines += said
    reason = snapshot.stuck or run.reason
    doing = snapshot.waits_for or doing
    if reason:
        data["reason"] = reason
        lines.append(f"{'It cannot go on' if snapshot.stuck else 'Reason'}: {reason}")
    if doing and run.status in ("queued", "running"):
        data["doing"] = doing
        lines.append(f"Right now: {doing}")
    if snapshot.notes:
        data["notes"] = [*snapshot.notes]
        lines += [f"Note: {one}" for one in snapshot.notes]
    if snapshot.questions:
        shown = [show(one) for one in snapshot.questions]
        data["pending"] = cast("JsonValue", shown)
        lines += [question_line(one) for one in shown]
    try:
        used = used_by(run)
    except CheckpointError as error:
        lines.append(f"Note: {error}")
    else:
        if used is not None and used.model_calls:
            data["usage"] = used.to_json()
            lines.append(_used_line(used))
    if events is not None:
        data |= events.data()
        lines += events.text()
    data["next"] = following
    lines.append(f"Next: {following}")
    return Answer("\n".join(lines), data, failed=run.status == "failed").result()


def with_notes(reply: _Reply, notes: Sequence[str]) -> _Reply:
    """Return a result with further notes, in text and data; other replies as they are."""
    data = reply.structured_content if isinstance(reply, CallToolResult) else None
    if not notes or not isinstance(reply, CallToolResult) or data is None:
        return reply
    said = TextContent(type="text", text="\n".join(f"Note: {one}" for one in notes))
    known = cast("list[JsonValue]", data.get("notes") or [])
    return reply.model_copy(
        update={
            "content": [*reply.content, said],
            "structured_content": {**data, "notes": [*known, *notes]},
        }
    )


def _task_id(snapshot: Snapshot) -> str | None:
    """Return the task id of a subagent whose answer is data; else its text has it."""
    result = snapshot.result
    if snapshot.data is None or result is None or not isinstance(result.artifact, dict):
        return None
    found = result.artifact.get("task_id")
    return found if isinstance(found, str) else None


def _as_it_went(snapshot: Snapshot) -> Snapshot:
    """Return a run whose only call failed, such as that of a subagent, as one that failed."""
    run, result = snapshot.run, snapshot.result
    if run.status != "done" or result is None or result.status != "error":
        return snapshot
    return replace(snapshot, run=replace(run, status="failed", answer=None, reason=result.text))


def _answer_facts(
    snapshot: Snapshot, offset: int, room: int, following: str
) -> tuple[dict[str, JsonValue], list[str], str]:
    """Return an answer as data and as lines of text, and what to do next.

    One that is data is there whole, or in pages of its JSON like any other.
    """
    run, data = snapshot.run, snapshot.data
    whole = (run.answer or "") if data is None else json.dumps(data, ensure_ascii=False)
    answer, following = _answer_page(run.id, whole, offset, room, following)
    lines = ["", answer or "(The agent ended without a text.)", ""]
    facts: dict[str, JsonValue] = {}
    if data is not None and answer == whole:
        facts["answer_data"] = data
    if not facts or len(whole) <= MAX_TWICE_CHARS:
        facts["answer"] = answer
    task_id = _task_id(snapshot)
    if task_id:
        facts["task_id"] = task_id
        lines += [f"task_id: {task_id}", ""]
    return facts, lines, following


def _answer_page(
    run_id: str, answer: str, offset: int, room: int, following: str
) -> tuple[str, str]:
    page = answer[offset : offset + room]
    end = offset + len(page)
    if end < len(answer):
        following = (
            f"the answer has {len(answer)} characters; the rest comes with "
            f'wait(run_id="{run_id}", answer_offset={end}). Then: {following}'
        )
    return page, following


def _used_line(used: Used) -> str:
    cost = "" if used.unpriced_calls else f", ${used.cost:.4f}"
    silent = used.unpriced_calls and not used.tokens  # a client's model does not say
    tokens = "tokens not reported" if silent else f"{used.tokens:,} tokens"
    return f"Used: {used.model_calls} model calls, {tokens}{cost}."


def question_line(shown: dict[str, JsonValue]) -> str:
    """Return a question, as `show` gives it, in words."""
    line = f"- {shown['id']}: {shown['question']} (asked by {shown['asked_by']})"
    if "tool" in shown:
        choices = " | ".join(cast("list[str]", shown["decisions"]))
        return f"{line}\n  call: {shown['tool']} {shown['args']}\n  decisions: {choices}"
    return f"{line}\n  answer: {json.dumps(shown['answer_schema'])}"


def _next(snapshot: Snapshot) -> str:
    run = snapshot.run
    match run.status:
        case "queued" | "running":
            return _next_while_running(snapshot)
        case "needs_approval":
            return (
                "put the pending questions to the user, then call "
                f'reply(run_id="{run.id}", answers={example(snapshot.questions)}), with what '
                "they decide. Do not decide for the user."
            )
        case "paused" if is_parked(run):
            return (
                f'call wait(run_id="{run.id}") from a client that declares sampling with tools, or '
                f'reply(run_id="{run.id}") once the server has a model of its own.'
            )
        case "paused":
            return f'it stopped where it can go on; call reply(run_id="{run.id}") for that.'
        case "done":
            return (
                f'to go on, call task with thread_id="{run.thread_id}"; files and todos of the '
                "thread are there for the other tools too."
            )
        case "failed" if snapshot.result is not None:
            return (
                "what it did so far is kept. Once the cause is removed, make the call again with "
                f'thread_id="{run.thread_id}".'
            )
        case "failed":
            return (
                f'what it did so far is kept. Once the cause is removed, call reply(run_id="'
                f'{run.id}") to go on where it stopped, or task for a new attempt.'
            )
        case "cancelled":
            return (
                f'what it did so far is kept in thread "{run.thread_id}"; call task with that '
                "thread_id to begin anew."
            )


def example(questions: Sequence[Interrupt]) -> str:
    """Return what answers of some questions look like, as JSON."""
    answers = {one.id: "approve" if one.kind == "approval" else "…" for one in questions[:3]}
    return json.dumps(answers, ensure_ascii=False)


def _next_while_running(snapshot: Snapshot) -> str:
    run_id = snapshot.run.id
    if snapshot.stopping:
        return (
            "this server is stopping, and the next one goes on with the run. Call "
            f'wait(run_id="{run_id}") again in about 10 s.'
        )
    if snapshot.calls:
        return (
            "it needs the model of a client that declares sampling with tools. If yours does, "
            f'call wait(run_id="{run_id}") at once, and it answers meanwhile; else the run '
            "pauses, and goes on when such a client waits for it."
        )
    if snapshot.stuck:
        return (
            f'once the cause is removed, call wait(run_id="{run_id}") to have it tried again, or '
            f'cancel(run_id="{run_id}") to end it.'
        )
    if snapshot.run.status == "queued":
        return (
            f'it begins by itself. Call wait(run_id="{run_id}") to wait for it (it blocks, so do '
            f'not poll sooner), or cancel(run_id="{run_id}") to take it out of the line.'
        )
    return (
        f'it works on without you. Call wait(run_id="{run_id}") to wait for it (it blocks, so do '
        f'not poll sooner), or cancel(run_id="{run_id}") to stop it.'
    )
