"""Threads and their history in words and as data, for the `threads` tool and the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from pydantic import JsonValue

from harness.agent import Agent
from harness.checkpoint.base import Checkpoint, Interrupt, Run
from harness.middleware.todo_list import render_todos
from server.approvals import show
from server.auth.owned_journal import JournalReader
from server.results import Answer, moment

__all__ = ["list_threads", "show_thread"]

LAST_RUNS = 5


async def list_threads(
    journal: JournalReader,
    limit: int,
    before: float | None,
    *,
    more: str = 'More: threads(before="{before}")',
) -> Answer:
    """Return a page of threads, last changed first; `more` says how to ask for the next one."""
    rows = await journal.threads(limit=limit + 1, before=before)
    page = rows[:limit]
    data: dict[str, JsonValue] = {
        "threads": [
            {
                "thread_id": row.thread_id,
                "updated": moment(row.updated_at),
                "checkpoints": row.checkpoints,
                "last_run": None if row.last_run is None else _run(row.last_run),
            }
            for row in page
        ]
    }
    lines = [
        f"- {row.thread_id}, {moment(row.updated_at)}, {row.checkpoints} checkpoints"
        + ("" if row.last_run is None else f"; last: {_run_line(row.last_run)}")
        for row in page
    ]
    if len(rows) > limit:
        data["next_before"] = repr(page[-1].updated_at)
        lines.append(more.format(before=data["next_before"]))
    return Answer("\n".join(lines) or "There are no threads yet.", data)


async def show_thread(
    agent: Callable[[], Agent],
    journal: JournalReader,
    thread_id: str,
    limit: int,
    before: str | None,
    *,
    more: str = 'More: threads(thread_id="{thread_id}", before="{before}")',
) -> Answer | None:
    """Return a thread with a page of its history, newest first; None if there is no such thread.

    The agent is built only if there is one. `more` says how to ask for the next page.
    """
    runs = await journal.find_runs(thread_id=thread_id, limit=LAST_RUNS)
    if not runs and await journal.load(thread_id) is None:
        return None
    state = await agent().get_state(thread_id)
    todos = list(state.values.get("todos", ()))
    history = await journal.history(thread_id, before=before, limit=limit + 1)
    page = history[:limit]
    questions = await _questions(journal, runs)
    data: dict[str, JsonValue] = {
        "thread_id": thread_id,
        "todos": agent().definition.schema["todos"].to_json(todos),
        "runs": [_run(run) for run in runs],
        "pending": cast("JsonValue", [show(one) for one in questions]),
        "checkpoints": [_checkpoint(one) for one in page],
    }
    lines = [f"Thread {thread_id}", render_todos(todos)]
    lines.append("Runs, newest first:" if runs else "No runs.")
    lines += [f"- {_run_line(run)}" for run in runs]
    lines += [f"Open question {one.id} of {one.run_id}: {one.message}" for one in questions]
    lines.append("Checkpoints, newest first:")
    lines += [
        f"- {one.id} step {one.step}, {moment(one.created_at)}, {one.author}: {one.summary}"
        for one in page
    ]
    if len(history) > limit:
        data["next_before"] = page[-1].id
        lines.append(more.format(thread_id=thread_id, before=page[-1].id))
    return Answer("\n".join(lines), data)


async def _questions(journal: JournalReader, runs: Sequence[Run]) -> list[Interrupt]:
    waiting = [run for run in runs if run.status in ("needs_approval", "running")]
    asked = [one for run in waiting for one in await journal.interrupts(run.id)]
    return [one for one in asked if not one.answered]


def _run(run: Run) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = {"run_id": run.id, "kind": run.kind, "status": run.status}
    if run.goal:
        shown["goal"] = run.goal[:120]
    if run.answer and run.kind == "delegate":  # a driven call has a result, no answer
        shown["answer"] = run.answer[:200]
    if run.reason:
        shown["reason"] = run.reason[:200]
    return shown


def _run_line(run: Run) -> str:
    parts = [f"{run.id} {run.kind} {run.status}"]
    if run.goal:
        parts.append(f"goal: {' '.join(run.goal[:120].split())}")
    if run.answer and run.kind == "delegate":
        parts.append(f"answer: {' '.join(run.answer[:200].split())}")
    if run.reason:
        parts.append(f"reason: {run.reason[:200]}")
    return "; ".join(parts)


def _checkpoint(one: Checkpoint) -> dict[str, JsonValue]:
    return {
        "checkpoint_id": one.id,
        "step": one.step,
        "time": moment(one.created_at),
        "author": one.author,
        "summary": one.summary,
    }
