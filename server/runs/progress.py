"""Progress of a run: lines about its events, and progress that rises with its todo list.

A call that waits for a run gets progress: one line per step, and a sign of life in between. If the
run has a todo list, progress is the number of finished todos; what happens between two of them is a
fraction. It only rises, as the protocol demands. Nothing is sent after the result, and steps that
come faster than the client reads are left out, because the newest line is the one that matters.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio

from ...harness.errors import HarnessError
from ...harness.loop.run.events import Emit, Event
from .active_run import WRITING, ActiveRun
from .contracts import Changed

__all__ = [
    "RisingProgress",
    "Todos",
    "describe",
    "note_event",
    "reporting",
    "todos_of",
]

PARTIAL_SECONDS = 1.0
"""Shortest time between two lines about an answer that is being written, in seconds."""

HEARTBEAT_SECONDS = 10.0
"""Seconds until a sign of life, because several hosts give up on a silent call after 60 s."""

FLUSH_SECONDS = 1.0
"""Seconds for which a slow client may delay the result."""

BACKLOG = 32

AGENT_SEPARATOR = " \u203a "

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Sends one notice: progress, total if known, text. Does nothing when the client wants none."""

Todos: TypeAlias = tuple[int, int]
"""How many todos are done, and how many there are."""


def describe(event: Event) -> str | None:
    """Return a line about an event for people, or None if it is not worth one."""
    data = event.data
    agents = AGENT_SEPARATOR.join(event.path[::2])
    match data.get("event"):
        case "model_start":
            return f"{agents}: thinking"
        case "writing":
            return f"{agents}: \u2026 {data.get('text')}"
        case "model_end":
            text = " ".join(str(data.get("text") or "").split())
            return f"{agents}: {text[:120]}" if text else None
        case "tool_start":
            return f"{agents}: {data.get('name')} {_subject(data.get('args'))}".rstrip()
        case "tool_end" if data.get("status") == "error":
            text = " ".join(str(data.get("text") or "").split())
            return f"{agents}: {data.get('name')} failed: {text[:100]}"
        case "tool_end" if data.get("status") == "waiting":
            return f"{agents}: {data.get('name')} waits for an answer"
        case "message_taken":
            text = " ".join(str(data.get("text") or "").split())
            return f"{agents}: reads your message: {text[:100]}"
        case _:
            return _noted(agents, data.get("data")) if event.mode == "custom" else None


def _noted(agents: str, data: object) -> str | None:
    """Return the line of middleware about a model call that is retried."""
    match data:
        case {"event": "model_retry", "text": str(text)}:
            return f"{agents}: {text}"
        case {"event": "model_asked_again"}:
            return f"{agents}: thinking"
        case _:
            return None


def _subject(args: object) -> str:
    """Return the argument that says most about a call."""
    if not isinstance(args, dict):
        return ""
    for name in ("file_path", "path", "pattern", "name", "description"):
        value: object = args.get(name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(value, str) and value:
            return " ".join(value.split())[:80]
    return ""


def todos_of(event: Event) -> Todos | None:
    """Return the state of the main agent's todo list in an event; None if it has none."""
    data = event.data.get("data")
    if event.mode != "custom" or len(event.path) > 2 or not isinstance(data, dict):
        return None
    counts = data.get("counts")
    if data.get("event") != "todos" or not isinstance(counts, dict):
        return None
    done, total = counts.get("completed"), counts.get("total")
    return (done, total) if isinstance(done, int) and isinstance(total, int) else None


class RisingProgress:
    """Turns the state of a todo list into progress that rises with each notice.

    It stays below the total, since a run whose todos are all done still has to answer. When a
    list is replaced by one with less done, both numbers move up, so that neither goes back.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._moved = 0
        self._done = 0
        self._steps = 1

    def next(self, todos: Todos) -> tuple[float, float | None]:
        """Return progress, and the total if there are todos."""
        done, total = todos
        if done > self._done:
            self._steps = 0
        self._done = done
        share = 0.5 * self._steps / (self._steps + 1)
        value = self._moved + (done + share if done < total or not total else done - 0.5 + share)
        self._steps += 1
        if value <= self._last:
            more = math.floor(self._last - value) + 1
            self._moved, value = self._moved + more, value + more
        self._last = value
        return value, float(total + self._moved) if total else None


@asynccontextmanager
async def reporting(
    report: Report, known: Callable[[], Awaitable[Todos]] | None = None
) -> AsyncGenerator[Emit]:
    """Yield a function for events, and report the events it receives until the block ends.

    Args:
        report: Sends a notice.
        known: Returns the state of the todo list before the first event about it. It is called
            inside the block, so that no event is missed meanwhile.
    """
    send, receive = anyio.create_memory_object_stream[str](BACKLOG)
    progress = RisingProgress()
    todos: Todos | None = None
    silent_until = 0.0

    def emit(event: Event) -> None:
        nonlocal todos, silent_until
        todos = todos_of(event) or todos
        line = describe(event)
        if event.data.get("event") == "writing":
            if anyio.current_time() < silent_until:
                return
            silent_until = anyio.current_time() + PARTIAL_SECONDS
        if line is not None and send.statistics().current_buffer_used < BACKLOG:
            send.send_nowait(line)

    async def pump() -> None:
        last, before = "working", (await known()) if known is not None else (0, 0)
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                with anyio.move_on_after(HEARTBEAT_SECONDS) as silence:
                    last = await receive.receive()
                text = f"still at it: {last}" if silence.cancelled_caught else last
                await report(*progress.next(todos or before), text)

    refused: HarnessError | None = None
    with send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump)
            try:
                yield emit
            except HarnessError as error:  # raised again below, so that the group does not wrap it
                refused = error
            send.close()  # the remaining lines are sent before the result
            tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS
    if refused is not None:
        raise refused


def note_event(live: ActiveRun, event: Event, changed: Changed) -> None:
    """Pass an event of a run on to its listeners, and announce what changed in its thread."""
    if event.mode == "messages":
        if live.writing.take(event):
            changed(live.thread_id, parts=WRITING)
            live.hear_writing(event)
        return
    if event.mode == "checkpoints":
        live.writing.end(event.path)
        live.partial = None
        live.hear(event)
        parts, files = live.changed_by(event), list[str]()
        if event.data.get("author") == "tools" and "checkpoints" in parts:
            more, files = live.take_written()
            parts |= more
        changed(live.thread_id, parts=parts, files=files)
        return
    line = describe(event)
    if event.mode != "custom" or line is not None or todos_of(event) is not None:
        live.hear(event)
    live.line = line or live.line
    if live.sampled is not None:
        live.sampled.hear(event)
    match event.data.get("event"):
        case "tool_start":
            live.note_written(event.data.get("name"), event.data.get("args"))
        case "tool_end" if event.data.get("status") == "waiting":
            changed(live.thread_id, parts=("steps",))
        case _:
            pass
