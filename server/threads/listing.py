"""Listing of threads, their history, todos and messages, as text and as data.

The `threads` tool and the command line show threads and their history. Messages are shown as
Markdown, for people and for models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import cast

from pydantic import JsonValue

from ...harness._internal import count_of
from ...harness.agent import Agent
from ...harness.checkpoint.base import Checkpoint, Interrupt, Run
from ...harness.errors import CheckpointError
from ...harness.limits.carried_limits import used_by
from ...harness.limits.usage import Used
from ...harness.messages.message import AIMessage, HumanMessage, Message, ToolCall, ToolMessage
from ...harness.middleware.todo_list import Todo, render_todos
from ...harness.state.channels import ChannelWrite
from ..approvals.questions import call_lines, show
from ..auth.owned_journal import JournalReader
from ..results import Answer, moment
from ..runs.contracts import holder_of

__all__ = [
    "asked_line",
    "cost_of",
    "list_threads",
    "question_line",
    "recent_runs",
    "run_facts",
    "run_line",
    "run_text",
    "show_thread",
    "todos_as_json",
    "todos_now",
    "transcript",
]


LAST_RUNS = 5

_TODOS = "todos"

MOST_CONTENT = 1_000
"""The most characters of one todo in short lists."""


async def list_threads(
    journal: JournalReader,
    limit: int,
    before: float | None,
    *,
    room: int | None = None,
) -> Answer:
    """Return a page of threads, last changed first; `room` is the most characters of its JSON."""
    rows = await journal.threads(limit=limit + 1, before=before)
    shown: list[JsonValue] = [
        {
            "thread_id": row.thread_id,
            "updated": moment(row.updated_at),
            "checkpoints": row.checkpoints,
            "last_run": None if row.last_run is None else run_facts(row.last_run),
        }
        for row in rows[:limit]
    ]
    page = rows[: _fitting(shown, room)]
    data: dict[str, JsonValue] = {"threads": shown[: len(page)]}
    lines = [
        f"- {row.thread_id}, {moment(row.updated_at)}, checkpoints: {row.checkpoints}"
        + ("" if row.last_run is None else f"; last: {run_line(row.last_run)}")
        for row in page
    ]
    if len(rows) > len(page):
        before_next = data["next_before"] = repr(page[-1].updated_at)
        lines.append(f'More: threads(before="{before_next}")')
    none = "There are no threads yet." if before is None else "There are no more threads."
    return Answer("\n".join(lines) or none, data)


async def recent_runs(
    journal: JournalReader, thread_id: str, limit: int = LAST_RUNS
) -> Sequence[Run]:
    """Return the last runs of a thread, newest first, and its open run, however old that is."""
    runs = [*await journal.find_runs(thread_id=thread_id, limit=limit)]
    holder = await holder_of(journal, thread_id) if len(runs) == limit else None
    if holder is not None and all(one.id != holder.id for one in runs):
        runs.append(holder)
    return runs


async def show_thread(
    agent: Callable[[], Agent],
    journal: JournalReader,
    thread_id: str,
    limit: int,
    before: str | None,
    *,
    more: str = 'More: threads(thread_id="{thread_id}", before="{before}")',
    todos_after: int = 0,
    room: int | None = None,
) -> Answer | None:
    """Return a thread with a page of its history, newest first; None if there is no such thread.

    The agent is only built if the thread exists.

    Args:
        agent: Returns the agent.
        journal: The journal with the thread.
        thread_id: The thread.
        limit: The most checkpoints to show.
        before: The page ends before this checkpoint.
        more: How to request the next page.
        todos_after: How many todos to skip.
        room: The most characters of JSON for todos, and for checkpoints.

    Raises:
        UnknownCheckpoint: The thread has no checkpoint `before`.
    """
    runs = await recent_runs(journal, thread_id)
    if not runs and await journal.load(thread_id) is None:
        return None
    begun = not runs or runs[0].status != "queued" or await journal.load(thread_id) is not None
    todos: list[Todo] = []
    if begun:
        todos += (await todos_now(agent(), thread_id))[todos_after:]
    if room is not None:
        todos = [_shortened(one) for one in todos]
    shown_todos = todos_as_json(agent(), todos)
    count = _fitting(shown_todos, room)
    history: list[Checkpoint] = []
    if begun:
        history = [*await agent().get_state_history(thread_id, before=before, limit=limit + 1)]
    shown = [_checkpoint(one) for one in history[:limit]]
    page = history[: _fitting(shown, room)]
    questions = await _questions(journal, runs)
    data: dict[str, JsonValue] = {
        "thread_id": thread_id,
        "todos": shown_todos[:count],
        "runs": [run_facts(run) for run in runs],
        "pending": cast("JsonValue", [show(one) for one in questions]),
        "checkpoints": cast("JsonValue", shown[: len(page)]),
    }
    lines = [f"Thread {thread_id}"]
    if todos or not todos_after:
        lines.append(render_todos(todos[:count]))
    if count < len(todos):
        data["todos_next"] = todos_after + count
        lines.append(f"{len(todos) - count} more todos after {todos_after + count}.")
    lines.append("Runs, newest first:" if runs else "No runs.")
    lines += [f"- {run_line(run)}" for run in runs]
    lines += [question_line(one) for one in questions]
    lines.append("Checkpoints, newest first:")
    lines += [
        f"- {one.id} step {one.step}, {moment(one.created_at)}, "
        + ": ".join(filter(None, (one.author, one.summary)))
        for one in page
    ]
    if len(history) > len(page):
        data["next_before"] = page[-1].id
        lines.append(more.format(thread_id=thread_id, before=page[-1].id))
    return Answer("\n".join(lines), data)


def _shortened(todo: Todo) -> Todo:
    more = len(todo.content) - MOST_CONTENT
    if more <= 0:
        return todo
    return replace(todo, content=f"{todo.content[:MOST_CONTENT]}… ({more} more characters)")


def _fitting(shown: Sequence[JsonValue], room: int | None) -> int:
    """Return how many of the first items fit into this many characters, but at least one."""
    sizes = accumulate(len(json.dumps(one, ensure_ascii=False)) + 2 for one in shown)
    fitting = len(shown) if room is None else sum(size <= room for size in sizes)
    return min(len(shown), max(1, fitting))


async def _questions(journal: JournalReader, runs: Sequence[Run]) -> list[Interrupt]:
    waiting = [run for run in runs if run.status in ("needs_approval", "running")]
    asked = [one for run in waiting for one in await journal.interrupts(run.id)]
    return [one for one in asked if not one.answered and one.is_question]


def question_line(question: Interrupt) -> str:
    """Return an open question as text."""
    return asked_line(question.run_id, show(question))


def asked_line(run_id: str, shown: Mapping[str, JsonValue]) -> str:
    """Return an open question as text, from the data of `show`."""
    line = (
        f"Open question {shown['id']} of {run_id}: {shown['question']} "
        f"(asked by {shown['asked_by']})"
    )
    if "tool" in shown:
        return line + call_lines(shown)
    return f"{line}\n  answer: {json.dumps(shown['answer_schema'])}"


def run_text(facts: Mapping[str, JsonValue], where: str, asked: Iterable[str]) -> str:
    """Return a whole run as text.

    Args:
        facts: The run as data, with its full goal and answer.
        where: A line about the server that works on it.
        asked: Its open questions as text.
    """
    usage = facts.get("usage")
    used = Used.from_json(usage) if isinstance(usage, dict) else None
    lines = [
        f"Run {facts['run_id']} on thread {facts['thread_id']}: {facts['status']}{where}",
        f"Kind: {facts['kind']}, by agent {facts['agent']}, attempt {facts['attempt']}",
        f"Begun: {facts['created']}, last changed: {facts['updated']}",
    ]
    said = {"Goal": facts["goal"], "Answer": facts["answer"], "Reason": facts["reason"]}
    lines += [f"{name}: {' '.join(str(text).split())}" for name, text in said.items() if text]
    if used is not None and used.model_calls:
        lines.append(f"Used: {count_of(used.model_calls, 'model call')}, {used.tokens:,} tokens")
    return "\n".join([*lines, *asked])


def run_facts(run: Run) -> dict[str, JsonValue]:
    """Return a run as data, shortened."""
    shown: dict[str, JsonValue] = {"run_id": run.id, "kind": run.kind, "status": run.status}
    if run.goal:
        shown["goal"] = run.goal[:120]
    if run.answer and run.kind == "delegate":  # a driven call has a result, but no answer
        shown["answer"] = run.answer[:200]
    if run.reason:
        shown["reason"] = run.reason[:200]
    return shown


def cost_of(run: Run) -> float | None:
    """Return the cost of a run in US dollars, by list prices; None if unknown."""
    try:
        used = used_by(run)
    except CheckpointError:
        return None
    return None if used is None or not used.model_calls else used.cost


def run_line(run: Run) -> str:
    """Return a run as text, shortened."""
    parts = [f"{run.id} {run.kind} {run.status}"]
    if run.goal:
        parts.append(f"goal: {' '.join(run.goal[:120].split())}")
    if run.answer and run.kind == "delegate":
        parts.append(f"answer: {' '.join(run.answer[:200].split())}")
    if run.reason:
        parts.append(f"reason: {' '.join(run.reason[:200].split())}")
    return "; ".join(parts)


def _checkpoint(one: Checkpoint) -> dict[str, JsonValue]:
    return {
        "checkpoint_id": one.id,
        "step": one.step,
        "time": moment(one.created_at),
        "author": one.author,
        "summary": one.summary,
    }


MAX_TEXT_CHARS = 20_000
"""The most characters of one message; the beginning of a longer one is shown."""


def transcript(thread_id: str, messages: Sequence[Message]) -> str:
    """Return all messages of a thread, oldest first."""
    parts = [f"# Thread {thread_id}"]
    if not messages:
        parts.append("No messages yet.")
    for message in messages:
        match message:
            case HumanMessage():
                who = "User" if message.source is None else f"Notice from {message.source}"
                parts.append(f"## {who}\n\n{_shown(message.text)}")
            case AIMessage():
                parts.append(_answer(message))
            case ToolMessage():
                failed = " (failed)" if message.status == "error" else ""
                parts.append(f"### Result of {message.name}{failed}\n\n{_fenced(message.text)}")
    return "\n\n".join(parts) + "\n"


def _answer(message: AIMessage) -> str:
    who = "Client" if message.source == "client" else f"Agent {message.name or ''}".rstrip()
    lines = [f"## {who}"]
    if message.text:
        lines.append(_shown(message.text))
    lines += [_call(call) for call in message.tool_calls]
    return "\n\n".join(lines)


def _call(call: ToolCall) -> str:
    args = call.invalid if call.invalid is not None else json.dumps(call.args, ensure_ascii=False)
    return f"Calls `{call.name}`:\n\n{_fenced(args)}"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in _backticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{_shown(text)}\n{fence}"


def _backticks(text: str) -> list[str]:
    runs = [""]
    for char in text:
        if char == "`":
            runs[-1] += char
        elif runs[-1]:
            runs.append("")
    return runs


def _shown(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    return f"{text[:MAX_TEXT_CHARS]}\n[… {len(text) - MAX_TEXT_CHARS} more characters]"


async def todos_now(agent: Agent, thread_id: str) -> Sequence[Todo]:
    """Return the todos of a thread.

    A finished call counts at once, because it never runs again, even if its step still waits for
    another call, such as one that needs approval.

    Raises:
        UnknownThread: There is no such thread.
        CheckpointError: The todos cannot be read.
    """
    state = await agent.get_state(thread_id)
    schema, values = agent.definition.schema, state.values
    if state.finished_calls and _TODOS in schema.channels:
        at = state.checkpoint.id
        step = await agent.checkpointer.load(thread_id, checkpoint_id=at, cached=at)
        writes = [
            ChannelWrite(_TODOS, schema[_TODOS].decode(one.value, overwrite=one.overwrite))
            for task in (() if step is None else step.pending)
            for one in task.writes
            if one.channel == _TODOS
        ]
        values = schema.fold(values, writes)
    return cast("Sequence[Todo]", values.get(_TODOS, ()))


def todos_as_json(agent: Agent, todos: Sequence[Todo]) -> list[JsonValue]:
    """Return todos as data; none for an agent without a todo list."""
    if not todos or _TODOS not in agent.definition.schema.channels:
        return []
    return cast("list[JsonValue]", agent.definition.schema[_TODOS].to_json([*todos]))
