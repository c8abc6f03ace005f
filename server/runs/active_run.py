"""Active run: a run of this process, one per thread, its listeners, and what it does now.

Short calls wait for the thread in line; long work turns them away.

A call that waits for a run gets progress: one line per step, and a sign of life in between. If the
run has a todo list, progress is the number of finished todos; what happens between two of them is a
fraction. It only rises, as the protocol demands. Nothing is sent after the result, and steps that
come faster than the client reads are left out, because the newest line is the one that matters.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, cast

import anyio

from ...harness._internal.concurrency import LazyEvent
from ...harness._internal.records import record
from ...harness.agent import RunResult
from ...harness.checkpoint.base import Run
from ...harness.errors import HarnessError, ThreadBusy
from ...harness.loop.run.context import RunControl
from ...harness.loop.run.events import Emit, Event
from ...harness.subagents.background.engine import parent_thread
from ..sampling.queue import Offer, SampledRun
from .writing import Writing

__all__ = [
    "HEARTBEAT_SECONDS",
    "MAX_UNHEARD",
    "PARTS",
    "WRITING",
    "ActiveRun",
    "GateHolder",
    "Report",
    "RisingProgress",
    "ThreadLocks",
    "ThreadPart",
    "Todos",
    "busy",
    "describe",
    "is_task",
    "reporting",
    "todos_of",
]


ThreadPart: TypeAlias = Literal["todos", "transcript", "checkpoints", "files", "steps", "writing"]
"""What of a thread can be read; `files` is the listing, `steps` those of subagents too, `writing`
the answers that models write just now."""

PARTS: tuple[ThreadPart, ...] = ("todos", "transcript", "checkpoints", "files", "steps")
"""Those that are in the journal."""

WRITING: tuple[ThreadPart, ...] = ("writing",)
"""The one that is not, and of which other servers know nothing."""

MAX_UNHEARD = 16
"""How many events are kept for who will listen."""

PARTIAL_CHARS = 160
"""Of the end of an answer that is shown while it is written."""

PARTIAL_SECONDS = 1.0
"""How often, at most."""

WRITERS = ("write_file", "edit_file")
"""Tools that write the file at `path`."""

COMMANDS = ("execute", "job")
"""Tools that may write any file."""

_PARTS: Mapping[str, ThreadPart] = {"messages": "transcript", "todos": "todos", "files": "files"}
"""What clients read of a state key."""


@dataclass(slots=True)
class ActiveRun:
    """A run this process works on.

    Attributes:
        run_id: The run.
        thread_id: Its thread.
        brief: A driven call, which others may wait for.
        counts: Whether it counts as one of its owner's runs at work.
        is_task: Whether it counts among the background tasks instead.
        is_new: Whether its thread begins with it.
        control: Ends it.
        finished: Set when it has paused or ended.
        listeners: Receive its events.
        unheard: Events so far, while nobody has listened yet.
        written: Paths of files it has written since that was last announced.
        ran_commands: Whether it has run commands since.
        line: The newest thing it does that is worth a line.
        writing: The answers that its models are writing just now.
        partial: How far the newest of them has come; None once it is stored.
        offer: What the client lends of its model that made it go; None if it goes on by itself.
        sampled: Its calls of a client's model, while it is carried.
        result: Where it stopped.
        error: Why it could not be carried at all.
    """

    run_id: str
    thread_id: str
    brief: bool = False
    counts: bool = True
    is_task: bool = False
    is_new: bool = False
    offer: Offer | None = None
    sampled: SampledRun | None = None
    control: RunControl = field(default_factory=RunControl)
    finished: LazyEvent = field(default_factory=LazyEvent)
    listeners: list[Emit] = field(default_factory=list[Emit])
    unheard: deque[Event] = field(default_factory=lambda: deque(maxlen=MAX_UNHEARD))
    written: dict[str, None] = field(default_factory=dict[str, None])
    ran_commands: bool = False
    line: str | None = None
    writing: Writing = field(default_factory=Writing)
    partial: Event | None = None
    result: RunResult | None = None
    error: HarnessError | None = None

    def hear(self, event: Event) -> None:
        """Pass an event on, or keep it for the first listener: a run starts before its caller."""
        for listener in self.listeners:
            listener(event)
        if not self.listeners:
            self.unheard.append(event)

    def hear_writing(self, event: Event) -> None:
        """Tell listeners how far an answer has come; those who come later get its newest part."""
        text = self.writing.end_of(event.path, PARTIAL_CHARS)
        if event.data.get("kind") != "text" or not text:
            return
        self.partial = replace(event, mode="tasks", data={"event": "writing", "text": text})
        if self.listeners:
            self.hear(self.partial)

    async def listen(self, emit: Emit | None) -> None:
        """Wait until the run has paused or ended; its events go to `emit` meanwhile."""
        if emit is None:
            await self.finished.wait()
            return
        while self.unheard:
            emit(self.unheard.popleft())
        if self.partial is not None:
            emit(self.partial)
        self.listeners.append(emit)
        try:
            await self.finished.wait()
        finally:
            self.listeners.remove(emit)

    def note_written(self, tool: object, args: object) -> None:
        """Remember which file a call writes, for the notice that goes out after it."""
        self.ran_commands = self.ran_commands or tool in COMMANDS
        if tool in WRITERS and isinstance(args, dict):
            path = cast("dict[str, object]", args).get("path")
            if isinstance(path, str):
                self.written["/" + path.lstrip("/")] = None

    def changed_by(self, event: Event) -> set[ThreadPart]:
        """Return what of the thread a checkpoint has changed, but for files it does not hold.

        That of a subagent is none of the thread's own: what it brings comes with its caller's.
        """
        if len(event.path) > 1:
            return {"steps"}
        keys = cast("list[str]", event.data.get("keys") or ())
        return {"checkpoints", "steps", *(_PARTS[key] for key in keys if key in _PARTS)}

    def take_written(self) -> tuple[set[ThreadPart], list[str]]:
        """Return what is to be announced of files that were written, and forget it."""
        parts: set[ThreadPart] = {"files"} if self.ran_commands else set()
        files = [*self.written]
        self.written.clear()
        self.ran_commands = False
        return parts, files


@record
class GateHolder:
    """The run that moves a thread. `brief` is a driven call that others may wait for."""

    run_id: str
    brief: bool


@dataclass(slots=True)
class _Gate:
    # Made by the first who has to wait for it. A lock must be released by the task that took it;
    # a call is carried by another one.
    turn: anyio.Semaphore | None = None
    holder: GateHolder | None = None
    users: int = 0


class ThreadLocks:
    """Gates of all threads that are in use, each first come, first served."""

    def __init__(self) -> None:
        self._gates: dict[str, _Gate] = {}

    def holder(self, thread_id: str) -> GateHolder | None:
        """Return the run that holds a thread's gate."""
        gate = self._gates.get(thread_id)
        return gate.holder if gate else None

    async def enter(self, thread_id: str, holder: GateHolder, seconds: float) -> GateHolder | None:
        """Take the gate, or return who still holds it after `seconds`; at once if not briefly."""
        gate = self._gates.setdefault(thread_id, _Gate())
        if gate.holder is not None and not gate.holder.brief:
            return gate.holder
        gate.users += 1
        if gate.holder is None and (gate.turn is None or gate.turn.value > 0):  # nor just let in
            if gate.turn is not None:
                gate.turn.acquire_nowait()
            gate.holder = holder
            return None
        if gate.turn is None:
            # Taking a free turn must not yield: between the turn and the holder nobody may look.
            gate.turn = anyio.Semaphore(0, fast_acquire=True)
        try:
            with anyio.move_on_after(seconds):
                await gate.turn.acquire()
                gate.holder = holder
                return None
        except BaseException:
            self._forget(thread_id, gate)
            raise
        self._forget(thread_id, gate)
        return gate.holder or holder

    def leave(self, thread_id: str) -> None:
        """Let the next one in."""
        gate = self._gates[thread_id]
        gate.holder = None
        if gate.turn is not None:
            gate.turn.release()
        self._forget(thread_id, gate)

    def _forget(self, thread_id: str, gate: _Gate) -> None:
        gate.users -= 1
        if gate.users == 0:
            self._gates.pop(thread_id, None)


def is_task(run: Run) -> bool:
    """Whether a run is one of a background task, and not a call that a client drove there."""
    return run.kind == "delegate" and parent_thread(run.thread_id) is not None


def busy(thread_id: str, run_id: str) -> ThreadBusy:
    """Return the error of a call that found its thread in use."""
    return ThreadBusy(
        f"Thread {thread_id} is in use: run {run_id} is working on it; nothing was done. Wait for "
        f'it with wait(run_id="{run_id}"), end it with cancel(run_id="{run_id}"), or use another '
        "thread.",
        run_id,
    )


HEARTBEAT_SECONDS = 10.0
"""Several hosts give up on a silent call after 60 s."""

FLUSH_SECONDS = 1.0
"""How long a client that reads slowly may hold up the result."""

BACKLOG = 32

AGENT_SEPARATOR = " \u203a "

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Sends one notice: progress, total if known, text. Does nothing when the client wants none."""

Todos: TypeAlias = tuple[int, int]
"""How many todos are done, and how many there are."""


def describe(event: Event) -> str | None:
    """Return what an event means to a person, or None if it is not worth a line."""
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
    """Return what middleware says of a model call that has to be made again."""
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
    """Return what an event says of the todo list of the main agent; None if nothing."""
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
async def reporting(report: Report, todos: Todos = (0, 0)) -> AsyncGenerator[Emit]:
    """Yield a function for events; what it is given is reported until the block ends.

    Args:
        report: Sends a notice.
        todos: What is known of the todo list.
    """
    send, receive = anyio.create_memory_object_stream[str](BACKLOG)
    progress = RisingProgress()
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
        last = "working"
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                with anyio.move_on_after(HEARTBEAT_SECONDS) as silence:
                    last = await receive.receive()
                text = f"still at it: {last}" if silence.cancelled_caught else last
                await report(*progress.next(todos), text)

    refused: HarnessError | None = None
    with send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump)
            try:
                yield emit
            except HarnessError as error:  # raised again below, outside of the group's wrapping
                refused = error
            send.close()  # what is left goes out before the result
            tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS
    if refused is not None:
        raise refused
