"""Results of `task`, `wait`, `reply` and `cancel`, all in the same shape; see `docs/task.md`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, cast

from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue

from ...harness._internal import count_of
from ...harness.checkpoint.base import Interrupt, Run
from ...harness.errors import CheckpointError
from ...harness.limits.carried_limits import used_by
from ...harness.limits.limits import Used
from ...harness.loop.run.caller_messages import CallerMessage
from ..approvals.decisions import whole_arguments
from ..approvals.questions import call_lines, show
from ..results import Answer
from ..runs.accounts import EventPage, Snapshot
from ..sampling.queue import is_parked
from .account_texts import account_facts

__all__ = ["example", "question_line", "run_result", "with_notes"]

_Reply = TypeVar("_Reply")

MAX_ANSWER_CHARS = 6_000

MAX_TWICE_CHARS = 2_000
"""Maximum characters of a structured answer that is repeated as text in structured content."""


def run_result(
    snapshot: Snapshot,
    *,
    answer_offset: int = 0,
    events: EventPage | None = None,
    doing: str | None = None,
    messages: Sequence[CallerMessage] = (),
) -> CallToolResult:
    """Return the tool result for a run; `isError` is set if the run failed.

    Args:
        snapshot: Snapshot of the run.
        answer_offset: Offset in the answer, for the next page.
        events: Events of the run.
        doing: A line about its current activity, if it is running and this is known.
        messages: Messages from the caller to the run that should be mentioned.
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
        lines.append(f"{'It cannot continue' if snapshot.stuck else 'Reason'}: {reason}")
    if doing and run.status in ("queued", "running"):
        data["doing"] = doing
        lines.append(f"Right now: {doing}")
    facts, said = _noted(snapshot, messages)
    data |= facts
    lines += said
    told = account_facts(run.thread_id, snapshot.account)
    data |= told.data
    lines += told.lines
    if snapshot.questions:
        facts, said, following = _asked(snapshot, answer_offset, following)
        data |= facts
        lines += said
    try:
        used = used_by(run)
    except CheckpointError as error:
        lines.append(f"Note: {error}")
    else:
        if used is not None and used.model_calls:
            data["usage"] = _usage(used)
            lines.append(_used_line(used))
    if events is not None:
        data |= events.data()
        lines += events.text()
    data["next"] = following
    lines.append(f"Next: {following}")
    result = Answer("\n".join(lines), data, failed=run.status == "failed").result()
    result.content += told.blocks
    return result


def _asked(
    snapshot: Snapshot, offset: int, following: str
) -> tuple[dict[str, JsonValue], list[str], str]:
    """Return the questions as data and as lines of text, and advice on what to do next.

    With an offset, return a page of arguments that are too long for the questions.
    """
    whole, run_id = whole_arguments(snapshot.questions), snapshot.run.id
    if not (offset and whole):
        shown = [show(one) for one in snapshot.questions]
        if whole:
            following = (
                f'wait(run_id="{run_id}", answer_offset=1) shows the arguments that are cut here, '
                f"and how to approve them. Then: {following}"
            )
        facts: dict[str, JsonValue] = {"pending": cast("JsonValue", shown)}
        return facts, [question_line(one) for one in shown], following
    page, end = whole[offset : offset + MAX_ANSWER_CHARS], offset + MAX_ANSWER_CHARS
    following = (
        f'the arguments continue: wait(run_id="{run_id}", answer_offset={end}).'
        if end < len(whole)
        else f'show all of it to the user, then call reply(run_id="{run_id}", answers={{"int_…": '
        '{"decision": "approve", "digest": "…"}}) with the digest shown, or another decision.'
    )
    return {"arguments": page}, [page], following


def _noted(
    snapshot: Snapshot, messages: Sequence[CallerMessage]
) -> tuple[dict[str, JsonValue], list[str]]:
    """Return notes and the status of messages, as data and as lines of text."""
    notes = [*snapshot.notes, *(_about_message(one, snapshot.run) for one in messages)]
    facts: dict[str, JsonValue] = {}
    if messages:
        facts["messages"] = [_message(one) for one in messages]
    if notes:
        facts["notes"] = [*notes]
    return facts, [f"Note: {one}" for one in notes]


def _message(message: CallerMessage) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = {"id": message.id, "status": message.status}
    if message.checkpoint_id is not None:
        shown["checkpoint_id"] = message.checkpoint_id
    return shown


def _about_message(message: CallerMessage, run: Run) -> str:
    """Return the status of a message to a run, as text."""
    match message.status:
        case "queued":
            return f"message {message.id} is queued: the run takes it before its next model call."
        case "taken":
            return f"message {message.id} was taken at checkpoint {message.checkpoint_id}."
        case "missed":
            return (
                f"message {message.id} was not taken: the run ended first. To continue, call "
                f'task with thread_id="{run.thread_id}". It said: {message.text[:200]}'
            )


def with_notes(reply: _Reply, notes: Sequence[str]) -> _Reply:
    """Return a result with additional notes, in text and data; other replies stay unchanged."""
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
    """Return the task id of a subagent with a structured answer; other answers contain it."""
    result = snapshot.result
    if snapshot.data is None or result is None or not isinstance(result.artifact, dict):
        return None
    found = result.artifact.get("task_id")
    return found if isinstance(found, str) else None


def _as_it_went(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot as failed if the run's only call failed, such as a subagent's."""
    run, result = snapshot.run, snapshot.result
    if run.status != "done" or result is None or result.status != "error":
        return snapshot
    return replace(snapshot, run=replace(run, status="failed", answer=None, reason=result.text))


def _answer_facts(
    snapshot: Snapshot, offset: int, room: int, following: str
) -> tuple[dict[str, JsonValue], list[str], str]:
    """Return an answer as data and as lines of text, and advice on what to do next.

    A structured answer is returned whole, or in pages of its JSON text like any other answer.
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


def _usage(used: Used) -> dict[str, JsonValue]:
    """Return the usage as data, without zeros and without ledger lines that repeat the total."""
    lines: list[JsonValue] = [one.to_json() for one in used.ledger]
    if len(used.ledger) == 1:
        (only,) = used.ledger
        lines = [{"agent": only.agent, "model": only.model, "calls": only.calls}]
    facts: dict[str, JsonValue] = {
        "model_calls": used.model_calls,
        "tool_calls": used.tool_calls,
        "usage": {key: value for key, value in used.usage.to_json().items() if value},
        "cost": round(used.cost, 6),
        "seconds": round(used.seconds, 1),
        "unpriced_calls": used.unpriced_calls,
        "ledger": lines,
    }
    return {key: value for key, value in facts.items() if value}


def _used_line(used: Used) -> str:
    cost = "" if used.unpriced_calls else f", ${used.cost:.4f}"
    silent = used.unpriced_calls and not used.tokens  # a client's model does not report them
    tokens = "tokens not reported" if silent else f"{used.tokens:,} tokens"
    return f"Used: {count_of(used.model_calls, 'model call')}, {tokens}{cost}."


def question_line(shown: dict[str, JsonValue]) -> str:
    """Return a question from `show` as a line of text."""
    line = f"- {shown['id']}: {shown['question']} (asked by {shown['asked_by']})"
    if "tool" in shown:
        return line + call_lines(shown)
    return f"{line}\n  answer: {json.dumps(shown['answer_schema'])}"


def _next(snapshot: Snapshot) -> str:
    run = snapshot.run
    match run.status:
        case "queued" | "running":
            return _next_while_running(snapshot)
        case "needs_approval":
            return (
                "ask the user, then pass their decision on with "
                f'reply(run_id="{run.id}", answers={example(snapshot.questions)}). Never decide '
                "for them."
            )
        case "paused" if is_parked(run):
            return (
                f'call wait(run_id="{run.id}") from a client that declares sampling with tools, or '
                f'reply(run_id="{run.id}") once the server has its own model.'
            )
        case "paused":
            return f'it can continue where it stopped; call reply(run_id="{run.id}") for that.'
        case "done":
            return f'to continue, call task or any other tool with thread_id="{run.thread_id}".'
        case "failed" if snapshot.result is not None:
            return (
                "what it did so far is kept. Once the cause is fixed, make the call again with "
                f'thread_id="{run.thread_id}".'
            )
        case "failed":
            return (
                f'what it did so far is kept. Once the cause is fixed, call reply(run_id="'
                f'{run.id}") to continue where it stopped, or task for a new attempt.'
            )
        case "cancelled":
            return (
                f'what it did so far is kept in thread "{run.thread_id}"; call task with that '
                "thread_id to continue there."
            )


def example(questions: Sequence[Interrupt]) -> str:
    """Return example answers for some questions, as JSON text."""
    answers = {one.id: "approve" if one.kind == "approval" else "…" for one in questions[:3]}
    return json.dumps(answers, ensure_ascii=False)


def _next_while_running(snapshot: Snapshot) -> str:
    run_id = snapshot.run.id
    if snapshot.stopping:
        return (
            "this server is stopping, and the next one continues the run. Call "
            f'wait(run_id="{run_id}") again in about 10 s.'
        )
    if snapshot.calls:
        return (
            "it needs the model of a client that declares sampling with tools. If yours does, "
            f'call wait(run_id="{run_id}") at once, and it answers meanwhile; else the run '
            "pauses, and continues when such a client waits for it."
        )
    if snapshot.stuck:
        return (
            f'once the cause is removed, call wait(run_id="{run_id}") to have it tried again, or '
            f'cancel(run_id="{run_id}") to end it.'
        )
    if snapshot.run.status == "queued":
        return (
            f'it starts by itself. Call wait(run_id="{run_id}") to wait for it (it blocks, so do '
            f'not poll sooner), or cancel(run_id="{run_id}") to remove it from the queue.'
        )
    return (
        f'it works on without you. Call wait(run_id="{run_id}") to wait for it (it blocks, so do '
        f'not poll sooner), or cancel(run_id="{run_id}") to stop it.'
    )
