"""What all agents of one run tree share: the run's record, its meter, its events, its end."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from pydantic import JsonValue

from harness.checkpoint.base import Checkpoint, Checkpointer, Run
from harness.limits import Meter
from harness.loop.events import Emit, Event, StreamMode
from harness.loop.run_journal import RunJournal
from harness.state import State

__all__ = ["RunContext", "RunControl", "StateCache"]


@dataclass(slots=True)
class RunControl:
    """A handle to end a run from outside.

    A run that is cancelled through it is recorded as `cancelled`. A run whose task is merely torn
    down (a closing server, a crash) stays `running` in the journal and can be resumed.

    Attributes:
        reason: Who or what cancelled the run.
        scope: Surrounds the run.
        accepted: Set once the input is in the journal.
    """

    reason: str | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    accepted: anyio.Event = field(default_factory=anyio.Event)

    def cancel(self, reason: str) -> None:
        """Stop the model stream and the running tools; what has finished stays."""
        if self.reason is None:
            self.reason = reason
        self.scope.cancel()


class StateCache:
    """The newest known states, so that a step does not read the journal it just wrote.

    An entry is only a hint: the journal is asked for everything after the cached checkpoint.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._states: OrderedDict[tuple[str, str], tuple[Checkpoint, State]] = OrderedDict()

    def get(self, thread_id: str, ns: str) -> tuple[Checkpoint, State] | None:
        """Return the checkpoint and state last seen for a namespace."""
        key = (thread_id, ns)
        if key in self._states:
            self._states.move_to_end(key)
            return self._states[key]
        return None

    def put(self, checkpoint: Checkpoint, state: State) -> None:
        """Remember a state; the least recently used one beyond the size is forgotten."""
        key = (checkpoint.thread_id, checkpoint.ns)
        self._states[key] = (checkpoint, state)
        self._states.move_to_end(key)
        while len(self._states) > self._size:
            self._states.popitem(last=False)


@dataclass(slots=True)
class RunContext:
    """One run tree.

    Attributes:
        run: The record, replaced as it changes.
        checkpointer: The journal, to read.
        journal: The journal, to write.
        meter: What the tree has used.
        context: What the caller passed as context.
        emit: Receives events; None when nobody listens.
        modes: The event modes somebody listens to.
    """

    run: Run
    checkpointer: Checkpointer
    journal: RunJournal
    meter: Meter
    context: Any = None
    emit: Emit | None = None
    modes: Collection[StreamMode] = ()
    _seq: int = 0

    @property
    def thread_id(self) -> str:
        """The thread the run moves."""
        return self.run.thread_id

    def wants(self, mode: StreamMode) -> bool:
        """Whether events of this mode are worth building."""
        return self.emit is not None and mode in self.modes

    def send(self, mode: StreamMode, path: tuple[str, ...], data: dict[str, JsonValue]) -> None:
        """Emit an event."""
        if self.emit is None or mode not in self.modes:
            return
        self._seq += 1
        self.emit(Event(mode, data, self.thread_id, self.run.id, self._seq, path))

    def update_run(self, **changes: Any) -> Run:
        """Replace fields of the run's record and return it; storing it is the caller's part."""
        self.run = replace(self.run, **changes, updated_at=time.time())
        return self.run
