"""Run context: the record, meter, events and end of a run, shared by all agents of its tree.

`current_agent` finds it in a context variable, for code that has neither a request nor a runtime.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
import anyio.from_thread
from pydantic import JsonValue

from ..._internal.concurrency import LazyEvent
from ..._internal.records import changed, record
from ...checkpoint.base import Checkpoint, Checkpointer, Run, RunEvent
from ...limits.limits import Meter
from ...state.channels import State
from .commit_buffer import CommitBuffer
from .events import Emit, Event, StreamMode, clipped
from .interrupts import Interrupted

if TYPE_CHECKING:
    from ...redaction.rules import Keys, Rule
    from ..hooks.middleware import AgentMiddleware
    from ..hooks.requests import Runtime
    from .choices import RunChoices
    from .redaction import RunRedaction

__all__ = [
    "CURRENT_AGENT",
    "CurrentAgent",
    "RunContext",
    "RunControl",
    "StateCache",
    "current_agent",
]

_DEBUGGED: tuple[StreamMode, ...] = ("checkpoints", "tasks")


@dataclass(slots=True)
class RunControl:
    """Handle to pause, cancel or hand over a run from outside.

    A run that is cancelled through it is recorded as `cancelled`; a run that is paused or drained
    as `paused`, which can be resumed. A run that is handed over stays `running` without an owner,
    and one whose task is simply ended (a crash) stays `running`. Both can be resumed too.

    Attributes:
        reason: Who or what stopped the run.
        ends_as: The status with which a stopped run is recorded.
        drained: Set if it has to stop once the current step is stored.
        hands_over: Why it then continues elsewhere automatically; None if it waits to be resumed.
        scope: Surrounds the run.
        waiting: Surrounds its wait for its turn on the thread, while it waits.
        accepted: Set once the input is in the journal.
    """

    reason: str | None = None
    ends_as: Literal["cancelled", "paused"] = "cancelled"
    drained: LazyEvent = field(default_factory=LazyEvent)
    hands_over: str | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    waiting: anyio.CancelScope | None = None
    accepted: LazyEvent = field(default_factory=LazyEvent)

    def cancel(self, reason: str) -> None:
        """Stop the model stream and the running tools; finished work stays."""
        self._stop(reason, "cancelled")

    def pause(self, reason: str) -> None:
        """Stop like `cancel`, but let the run be resumed."""
        self._stop(reason, "paused")

    def drain(self) -> None:
        """Let the current step finish and be stored, then pause.

        A step that is only waiting to retry a model call is stopped, and repeated later.
        """
        self.drained.set()

    def hand_over(self, reason: str) -> None:
        """Drain, and leave the run to any process that looks for abandoned runs.

        The reason stays in its record until it is resumed.
        """
        self.hands_over = reason
        self.drained.set()

    def leave(self) -> None:
        """Stop at once without a record, like a crash; the run can be resumed."""
        self.scope.cancel()

    def _stop(self, reason: str, ends_as: Literal["cancelled", "paused"]) -> None:
        if self.reason is None:
            self.reason, self.ends_as = reason, ends_as
        if self.waiting is not None:
            self.waiting.cancel()
        self.scope.cancel()


_MOST_STATES = 256
"""The most namespaces whose states a `StateCache` keeps."""


class StateCache:
    """Cache of the newest states, so that a step does not read the journal it just wrote.

    An entry is only a hint: everything after the cached checkpoint is read from the journal.

    Attributes:
        rules: The redaction rules for these states, and for everything added to them.
    """

    def __init__(self) -> None:
        self.rules: Sequence[Rule] = ()
        self._states: OrderedDict[tuple[str, str], tuple[Checkpoint, State]] = OrderedDict()

    def get(self, thread_id: str, ns: str) -> tuple[Checkpoint, State] | None:
        """Return the checkpoint and state last seen for a namespace."""
        key = (thread_id, ns)
        if key in self._states:
            self._states.move_to_end(key)
            return self._states[key]
        return None

    def put(self, checkpoint: Checkpoint, state: State) -> None:
        """Cache a state; beyond the limit, the least recently used one is dropped."""
        key = (checkpoint.thread_id, checkpoint.ns)
        self._states[key] = (checkpoint, state)
        self._states.move_to_end(key)
        while len(self._states) > _MOST_STATES:
            self._states.popitem(last=False)


@dataclass(slots=True)
class RunContext:
    """One run tree.

    Attributes:
        run: The record, replaced as it changes.
        checkpointer: The journal, to read.
        journal: The journal, to write.
        meter: The usage of the tree.
        control: Ends it from outside.
        context: The caller's context.
        emit: Receives events; None if nobody listens.
        modes: The event modes that have listeners.
        wanted: The modes that `send` passes on, including those for the `debug` stream.
        thread_id: The run's thread.
        synced: Whether each step waits for the disk; see `Batch`.
        only_reads: Whether all its calls are read-only, so that they need not be recorded.
        configurable: Values for models that are configured at run time.
        logs_events: Whether `tasks` and `custom` events are stored in the journal.
        room: Waits until the receiver of the events has caught up.
        screens: Redaction of the tree's agents, by path; empty for none.
        told_of_stops: Middleware of agents in this run to notify when it stops.
        principal: The user on whose behalf it runs; see `RunOptions.principal`.
        choices: Its caller's choices.
    """

    run: Run
    checkpointer: Checkpointer
    journal: CommitBuffer
    meter: Meter
    control: RunControl = field(default_factory=RunControl)
    context: Any = None
    emit: Emit | None = None
    modes: Collection[StreamMode] = ()
    synced: bool = True
    only_reads: bool = False
    configurable: Mapping[str, Any] = field(default_factory=dict[str, Any])
    logs_events: bool = False
    room: Callable[[], Awaitable[None]] | None = None
    screens: dict[tuple[str, ...], RunRedaction] = field(
        default_factory=dict[tuple[str, ...], "RunRedaction"]
    )
    principal: str = ""
    choices: RunChoices | None = None
    told_of_stops: list[AgentMiddleware] = field(default_factory=list["AgentMiddleware"])
    _keys: Keys | None = None
    _seq: int = 0
    _thread: int = field(default_factory=threading.get_ident)
    thread_id: str = field(init=False)
    wanted: frozenset[StreamMode] = field(init=False)

    def __post_init__(self) -> None:
        self.thread_id = self.run.thread_id
        heard = () if self.emit is None else self.modes
        self.wanted = frozenset((*heard, *_DEBUGGED) if "debug" in heard else heard)

    def add_screen(self, path: tuple[str, ...], rules: Sequence[Rule]) -> RunRedaction | None:
        """Store an agent's redaction: its own rules after those of the agents above it."""
        above = self.screen_of(path)
        known = above.rules if above is not None else ()
        every = (*known, *(rule for rule in rules if rule not in known))
        if not every:
            return None
        from ...redaction.rules import Keys
        from .redaction import RedactedJournal, RunRedaction

        if self._keys is None:
            self._keys = Keys()
            journal = RedactedJournal(self.journal, self._keys, self.screens)
            self.journal = cast(CommitBuffer, journal)
        self.screens[path] = RunRedaction(every, self._keys)
        return self.screens[path]

    def screen_of(self, path: tuple[str, ...]) -> RunRedaction | None:
        """Return the redaction at a path: that of the nearest agent above it."""
        if not self.screens:
            return None
        from .redaction import redaction_at

        return redaction_at(path, self.screens)

    def send(self, mode: StreamMode, path: tuple[str, ...], data: dict[str, JsonValue]) -> None:
        """Emit an event; checkpoints and tasks also go into the `debug` stream."""
        emit = self.emit
        if emit is None or mode not in self.wanted:
            return
        if mode in self.modes:
            self._seq += 1
            emit(Event(mode, data, self.thread_id, self.run.id, self._seq, path))
        if mode in _DEBUGGED and "debug" in self.modes:
            self._seq += 1
            shown = {"type": mode, **data}
            emit(Event("debug", shown, self.thread_id, self.run.id, self._seq, path))

    def note(self, mode: StreamMode, path: tuple[str, ...], data: dict[str, JsonValue]) -> None:
        """Store an event in the journal, with the next commit."""
        if self.logs_events:
            self.journal.note(RunEvent(self.run.id, mode, path, clipped(data)))

    def write_custom(self, path: tuple[str, ...], data: JsonValue) -> None:
        """Emit a `custom` event for a hook or a tool, which may run in a worker thread."""
        if threading.get_ident() == self._thread:
            self._write_custom(path, data)
        else:
            anyio.from_thread.run_sync(self._write_custom, path, data)

    def _write_custom(self, path: tuple[str, ...], data: JsonValue) -> None:
        screen = self.screen_of(path)
        if screen is not None:
            by_tool = path not in self.screens  # otherwise by a hook of the agent
            data = screen.json(data, "tools") if by_tool else screen.json(data)
        self.note("custom", path, {"data": data})
        self.send("custom", path, {"data": data})

    def drain(self) -> None:
        """Drain the run for a hook, which may run in a worker thread."""
        if threading.get_ident() == self._thread:
            self.control.drain()
        else:
            anyio.from_thread.run_sync(self.control.drain)

    async def wait(self, seconds: float) -> None:
        """Wait in a step that can be repeated.

        Raises:
            Interrupted: The run drains, and pauses without finishing the step.
        """
        with anyio.move_on_after(seconds):
            await self.control.drained.wait()
            raise Interrupted(())

    def update_run(self, **changes: Any) -> Run:
        """Replace fields of the run's record and return it; the caller has to store it."""
        if self.screens:
            changes = self._clean(changes)
        self.run = changed(self.run, **changes, updated_at=time.time())
        return self.run

    def _clean(self, changes: dict[str, Any]) -> dict[str, Any]:
        redactor = next(iter(self.screens.values())).at(lenient=True)
        if redactor is None:
            return changes
        texts = {key: changes[key] for key in ("goal", "answer", "reason") if changes.get(key)}
        return {**changes, **{key: redactor(text) for key, text in texts.items()}}


@record
class CurrentAgent:
    """An agent that is running now.

    Attributes:
        runtime: The runtime of its hooks.
        run: The run tree it belongs to.
        watchers: Its middleware with a `wrap_internal_call`, outermost first.
    """

    runtime: Runtime
    run: RunContext
    watchers: Sequence[AgentMiddleware]


CURRENT_AGENT: ContextVar[CurrentAgent | None] = ContextVar("current_agent", default=None)
"""The running agent; set by the loop around each phase."""


def current_agent() -> CurrentAgent | None:
    """Return the innermost agent in whose hook, model call or tool call this runs, if any."""
    return CURRENT_AGENT.get()
