"""Active run: a run that this process executes, with its listeners and its current activity.

A thread has one active run. Short calls wait for each other in line; a long run refuses them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import anyio

from ...harness._internal.concurrency import LazyEvent
from ...harness._internal.records import record
from ...harness.agent import Agent, RunResult
from ...harness.checkpoint.base import Run
from ...harness.errors import HarnessError, ThreadBusy
from ...harness.loop.run.context import RunControl
from ...harness.loop.run.events import Emit, Event
from ...harness.subagents.background.engine import parent_thread
from ..sampling.queue import Offer, SampledRun

if TYPE_CHECKING:
    from ...harness.subagents.background.launcher import BackgroundSubAgents

__all__ = [
    "MAX_UNHEARD",
    "PARTS",
    "WRITING",
    "ActiveRun",
    "GateHolder",
    "ThreadGates",
    "ThreadPart",
    "Writing",
    "agent_of",
    "busy",
    "call_id",
    "is_task",
    "starts_by_itself",
]

MOST_CHARS = 100_000
"""How many characters of an unfinished answer are kept; its step stores the whole answer."""

ANNOUNCE_SECONDS = 0.2
"""Seconds between two notices that an answer has grown."""


@record
class Written:
    """The part of an answer that a model has written so far.

    Attributes:
        path: Names of agents and calls from the root to the agent that writes.
        text: Its text so far.
        thinking: Its thinking so far.
        since: Unix time at which it began.
    """

    path: tuple[str, ...]
    text: str
    thinking: str
    since: float


@dataclass(slots=True)
class _Begun:
    since: float
    text: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    size: int = 0


class Writing:
    """Collects the pieces of unfinished answers by agent, and drops them once one is stored."""

    __slots__ = ("_announced", "_begun")

    def __init__(self) -> None:
        self._begun: dict[tuple[str, ...], _Begun] = {}
        self._announced = 0.0

    def take(self, event: Event) -> bool:
        """Add a piece; return whether it is time to notify watchers."""
        kind, text = event.data.get("kind"), event.data.get("text")
        if kind == "dropped":
            self._begun.pop(event.path, None)
            return True
        if kind not in ("text", "thinking") or not isinstance(text, str) or not text:
            return False
        begun = self._begun.get(event.path)
        if begun is None:
            begun = self._begun[event.path] = _Begun(time.time())
        if begun.size < MOST_CHARS:
            begun.size += len(text)
            (begun.text if kind == "text" else begun.thinking).append(text)
        now = time.monotonic()
        if now < self._announced + ANNOUNCE_SECONDS:
            return False
        self._announced = now
        return True

    def end_of(self, path: tuple[str, ...], chars: int) -> str:
        """Return the end of an agent's unfinished answer, on one line and from a whole word on."""
        begun = self._begun.get(path)
        pieces, size = list[str](), 0
        for piece in reversed(begun.text if begun is not None else ()):
            pieces.append(piece)
            size += len(piece)
            if size > chars:
                break
        text = " ".join("".join(reversed(pieces)).split())
        return text if len(text) <= chars else text[-chars:].partition(" ")[2] or text[-chars:]

    def end(self, path: tuple[str, ...]) -> None:
        """Drop the answer of an agent: its step is stored, or the next one begins."""
        self._begun.pop(path, None)

    def now(self) -> list[Written]:
        """Return the unfinished answers, in the order in which they began."""
        return [
            Written(path, "".join(one.text), "".join(one.thinking), one.since)
            for path, one in self._begun.items()
        ]


ThreadPart: TypeAlias = Literal["todos", "transcript", "checkpoints", "files", "steps", "writing"]
"""Parts of a thread that can be read. `files` is the list of files, `steps` includes the steps of
subagents, and `writing` contains the answers that models are writing now."""

PARTS: tuple[ThreadPart, ...] = ("todos", "transcript", "checkpoints", "files", "steps")
"""The parts that are in the journal."""

WRITING: tuple[ThreadPart, ...] = ("writing",)
"""The part that is not in the journal, and is unknown to other servers."""

MAX_UNHEARD = 16
"""How many events are kept for the first listener."""

PARTIAL_CHARS = 160
"""How many characters of the end of an unfinished answer are shown."""


WRITERS = ("write_file", "edit_file")
"""Tools that write the file at `path`."""

COMMANDS = ("execute", "job")
"""Tools that may write any file."""

_PARTS: Mapping[str, ThreadPart] = {"messages": "transcript", "todos": "todos", "files": "files"}
"""Which part of a thread clients read from a state key."""


@dataclass(slots=True)
class ActiveRun:
    """A run this process works on.

    Attributes:
        run_id: The run.
        thread_id: Its thread.
        brief: Whether it is a driven call, which others may wait for.
        counts: Whether it counts as one of its owner's working runs.
        is_task: Whether it counts among the background tasks instead.
        is_new: Whether it creates its thread.
        principal: On whose behalf it works; empty for the local user.
        control: Ends it.
        finished: Set when it has paused or ended.
        listeners: Receive its events.
        unheard: Events so far, if nobody has listened yet.
        written: Paths of files it has written since that was last announced.
        ran_commands: Whether it has run commands since the last announcement.
        line: A line about its newest activity.
        writing: The answers that its models are writing now.
        partial: The newest of them so far; None once it is stored.
        offer: The offer of the client whose model it needs; None if it needs none.
        sampled: Its calls of a client's model, while it is executed.
        result: Where it stopped.
        error: Why it could not be executed at all.
    """

    run_id: str
    thread_id: str
    brief: bool = False
    counts: bool = True
    is_task: bool = False
    is_new: bool = False
    principal: str = ""
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
        """Pass an event on, or keep it for the first listener: runs start before they have one."""
        for listener in self.listeners:
            listener(event)
        if not self.listeners:
            self.unheard.append(event)

    def hear_writing(self, event: Event) -> None:
        """Send listeners an unfinished answer; later listeners get its newest part."""
        text = self.writing.end_of(event.path, PARTIAL_CHARS)
        if event.data.get("kind") != "text" or not text:
            return
        self.partial = replace(event, mode="tasks", data={"event": "writing", "text": text})
        if self.listeners:
            self.hear(self.partial)

    async def listen(self, emit: Emit | None) -> None:
        """Wait until the run has paused or ended, and pass its events to `emit` meanwhile."""
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
        """Remember which file a call writes, for the notice after the call."""
        self.ran_commands = self.ran_commands or tool in COMMANDS
        if tool in WRITERS and isinstance(args, dict):
            path = cast("dict[str, object]", args).get("path")
            if isinstance(path, str):
                self.written["/" + path.lstrip("/")] = None

    def changed_by(self, event: Event) -> set[ThreadPart]:
        """Return the parts of the thread that a checkpoint changed, except files on disk.

        A subagent's checkpoint changes no part of the thread. Its caller's checkpoint does.
        """
        if len(event.path) > 1:
            return {"steps"}
        keys = cast("list[str]", event.data.get("keys") or ())
        return {"checkpoints", "steps", *(_PARTS[key] for key in keys if key in _PARTS)}

    def take_written(self) -> tuple[set[ThreadPart], list[str]]:
        """Return the file changes to announce, and forget them."""
        parts: set[ThreadPart] = {"files"} if self.ran_commands else set()
        files = [*self.written]
        self.written.clear()
        self.ran_commands = False
        return parts, files


@record
class GateHolder:
    """The run that holds a thread. `brief` is a driven call that others may wait for."""

    run_id: str
    brief: bool


@dataclass(slots=True)
class _Gate:
    # Made by the first task that has to wait. It is no lock, because a lock must be released by
    # the task that took it, and a call is executed by another task.
    turn: anyio.Semaphore | None = None
    holder: GateHolder | None = None
    users: int = 0


class ThreadGates:
    """Gates of all threads in use; each is first come, first served."""

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
            # Taking a free turn must not yield: no other task may run before the holder is set.
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
        """Let the next run in."""
        gate = self._gates[thread_id]
        gate.holder = None
        if gate.turn is not None:
            gate.turn.release()
        self._forget(thread_id, gate)

    def _forget(self, thread_id: str, gate: _Gate) -> None:
        gate.users -= 1
        if gate.users == 0:
            self._gates.pop(thread_id, None)


def call_id(run_id: str) -> str:
    """Return the id of a driven run's tool call, which finds its result."""
    return "call_" + run_id.partition("_")[2]


def is_task(run: Run) -> bool:
    """Whether a run executes a background task, and is no driven call on its thread."""
    return run.kind == "delegate" and parent_thread(run.thread_id) is not None


def agent_of(run: Run, main: Agent, tasks: BackgroundSubAgents | None) -> Agent:
    """Return who a run belongs to: the main agent, or the subagent of a background task.

    Raises:
        HarnessError: It belongs to a background task, and this server has none.
    """
    if run.kind == "drive" or parent_thread(run.thread_id) is None or run.agent == main.name:
        return main
    if tasks is None:
        raise HarnessError(
            f"run {run.id} is a background task of subagent {run.agent}, with which this "
            "server does not continue. Start it with --background-subagents."
        )
    return tasks.agent(run.agent)


def starts_by_itself(run: Run) -> ThreadBusy:
    """Return the error for an attempt to continue a queued run."""
    return ThreadBusy(
        f"Run {run.id} is queued and starts by itself; nothing was done. Wait for it with "
        f'wait(run_id="{run.id}"), or end it with cancel(run_id="{run.id}").',
        run.id,
    )


def busy(thread_id: str, run_id: str) -> ThreadBusy:
    """Return the error for a call whose thread is in use."""
    return ThreadBusy(
        f"Thread {thread_id} is in use: run {run_id} is working on it; nothing was done. Wait for "
        f'it with wait(run_id="{run_id}"), end it with cancel(run_id="{run_id}"), or use another '
        "thread.",
        run_id,
    )
