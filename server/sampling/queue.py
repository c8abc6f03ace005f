"""Sampling queue: passes a run's model calls to requests of the client that answers them.

A call waits in the memory of the process that executes its run, as with any other model. It is not
stored in the journal. Nothing is lost if the process ends: a run that continues elsewhere repeats
the call. A run without a client is paused, and continues with the next client that can answer.

If several servers share a journal, a run moves to the server of its client: if the client is
elsewhere, the executing server pauses the run at its next model call. If a client's answer reaches
a server before the run does, the answer is kept for that call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

import anyio
import anyio.lowlevel
from mcp.types import (
    InputResponse,
)

from ...harness._internal.concurrency import LazyEvent
from ...harness.checkpoint.base import Run
from ...harness.errors import ModelError
from ...harness.loop.run.events import Event
from ...harness.subagents.background.engine import parent_thread
from .messages import Answer
from .sampled_call import Activity, SampledCall, answer_in, digest_in, is_call

__all__ = [
    "GATHER_SECONDS",
    "LEASE_SECONDS",
    "PARKED",
    "UNATTENDED_SECONDS",
    "Offer",
    "SampledRun",
    "SamplingQueue",
    "current_run",
    "is_parked",
]

Offer: TypeAlias = Literal["tools", "plain", "none"]
"""A client's declared support: sampling with tools, without tools, or none."""

UNATTENDED_SECONDS = 60.0
"""Seconds that a call waits for a client until its run is paused."""

LOOK_AGAIN_SECONDS = 1.0
"""Seconds between checks of a run that will be paused after its other calls have finished."""

LEASE_SECONDS = 600.0
"""Seconds that a client has to answer its calls."""

GATHER_SECONDS = 2.0
"""Seconds that calls wait for calls of other subagents, so that one round sends them all."""

MOST_KEPT = 64
"""Maximum answers kept for a thread whose run has not arrived on this server yet."""

PARKED = (
    "it needs the model of an MCP client, and no client that offers one (sampling with tools) is "
    "waiting for this run. It continues when such a client calls wait or reply with its run_id, "
    "or, "
    "once the server has its own model (ANTHROPIC_API_KEY, --model), when somebody calls reply."
)
"""The `reason` of a run that is paused until a client offers its model."""


def is_parked(run: Run) -> bool:
    """Whether a run was paused because it had no client."""
    return run.status == "paused" and run.reason == PARKED


class SampledRun:
    """The sampling state of a run that is being executed.

    Args:
        queue: The queue from which clients take its calls.
        thread_id: Its thread.
        pause: Pauses the run, with a reason.
        offer: Sampling support of the client that started it; None if it continues without one.
    """

    def __init__(
        self,
        queue: SamplingQueue,
        thread_id: str,
        pause: Callable[[str], None],
        offer: Offer | None,
    ) -> None:
        self.thread_id = thread_id
        self.offer: Offer | None = offer
        self.calls: dict[str, SampledCall] = {}
        self.activity = Activity()
        self.moved = LazyEvent()
        self._queue = queue
        self._pause = pause
        self._waits: set[anyio.CancelScope] = set()

    def hear(self, event: Event) -> None:
        """Process an event of the run."""
        if self.activity.hear(event):
            self._move()

    async def ask(self, call: SampledCall) -> Answer:
        """Wait for the answer of a client's model; pause the run if it has no client.

        Raises:
            ModelError: The client refused, or failed.
        """
        call.answer = self._queue.kept(self.thread_id, call)
        if call.answer is not None:
            call.was_asked = True
            return await self._answer(call)
        self.calls[call.key] = call
        self._move()
        self._queue.asked(self)
        try:
            return await self._answer(call)
        finally:
            call.close(None)
            self.calls.pop(call.key, None)
            self._move()

    async def _answer(self, call: SampledCall) -> Answer:
        waited_from = anyio.current_time()
        while call.answer is None:
            left = self._queue.attended_until(self.thread_id, waited_from) - anyio.current_time()
            if left <= 0 and not self.activity.is_more_than(len(self.calls)):
                self._pause(PARKED)
                await anyio.lowlevel.checkpoint()  # the paused run is cancelled here
            with anyio.move_on_after(left if left > 0 else LOOK_AGAIN_SECONDS) as wait:
                self._waits.add(wait)
                try:
                    await call.closed.wait()
                finally:
                    self._waits.discard(wait)
        if isinstance(call.answer, ModelError):
            raise call.answer
        return call.answer

    def look(self) -> None:
        """Make all calls check again whether they have a client."""
        for wait in self._waits:
            wait.cancel()

    def take(self, responses: Mapping[str, InputResponse]) -> None:
        """Process a client's answers to calls of this run, even if another server sent them."""
        same = {call.digest: key for key, call in self.calls.items()}
        for key, response in responses.items():
            self.close(key if key in self.calls else same.get(digest_in(key), ""), response)

    def close(self, key: str, answer: InputResponse | ModelError) -> None:
        """Answer a call, if it is still open."""
        call = self.calls.pop(key, None)
        if call is not None:
            call.close(answer if isinstance(answer, ModelError) else answer_in(answer))

    async def gathered(self) -> None:
        """Wait until only calls of the client's model are running."""
        while self.activity.is_more_than(len(self.calls)):
            await self.moved.wait()

    def _move(self) -> None:
        self.moved.set()
        self.moved = LazyEvent()


current_run: ContextVar[SampledRun | None] = ContextVar("sampled_run", default=None)
"""The run that calls a model in this task."""


class SamplingQueue:
    """The open model calls of all runs that this process executes.

    Args:
        changed: Called with the id of a thread that has a new call; must not block.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._runs: dict[str, SampledRun] = {}
        self._watchers: list[tuple[str, Callable[[], None]]] = []
        self._attendants: list[str] = []
        self._leases: dict[str, float] = {}
        self._elsewhere: dict[str, float] = {}
        self._kept: dict[str, tuple[float, dict[str, Answer | ModelError]]] = {}

    @contextmanager
    def carrying(
        self, run_id: str, thread_id: str, pause: Callable[[str], None], offer: Offer | None
    ) -> Generator[SampledRun]:
        """Register a run during the block, so that it can call a client's model."""
        run = self._runs[run_id] = SampledRun(self, thread_id, pause, offer)
        token = current_run.set(run)
        try:
            yield run
        finally:
            current_run.reset(token)
            del self._runs[run_id]
            for key, until in [*self._leases.items()]:
                if until < anyio.current_time() or not self.runs(key):
                    del self._leases[key]

    # --- for runs --------------------------------------------------------------------------

    def asked(self, run: SampledRun) -> None:
        """Notify everyone who waits for calls of this run, or of a run that started it."""
        thread_id: str | None = run.thread_id
        while thread_id is not None:
            self._changed(thread_id)
            thread_id = parent_thread(thread_id)
        for thread_id, wake in [*self._watchers]:
            if _covers(thread_id, run.thread_id):
                wake()

    def attended_until(self, thread_id: str, begun: float) -> float:
        """Return the time until which a call that began at `begun` may wait for a client."""
        now = anyio.current_time()
        if any(_covers(one, thread_id) for one in self._attendants):
            return now + UNATTENDED_SECONDS
        if any(until > now for one, until in self._elsewhere.items() if _covers(one, thread_id)):
            return now
        leases = [until for one, until in self._leases.items() if _covers(one, thread_id)]
        return max([begun + UNATTENDED_SECONDS, *leases])

    def kept(self, thread_id: str, call: SampledCall) -> Answer | ModelError | None:
        """Remove and return an answer that arrived before its call; None if there is none."""
        for one, (until, answers) in self._kept.items():
            if _covers(one, thread_id) and until > anyio.current_time():
                return answers.pop(call.digest, None)
        return None

    # --- for other servers -----------------------------------------------------------------

    def wanted_elsewhere(self, thread_id: str, seconds: float) -> None:
        """Let runs of a thread move to their client's server at the next model call.

        They stay if a client is attending here.

        Args:
            thread_id: The thread.
            seconds: How long the client will stay on its server.
        """
        now = anyio.current_time()
        self._elsewhere = {one: until for one, until in self._elsewhere.items() if until > now}
        self._elsewhere[thread_id] = now + seconds
        for run in self.runs(thread_id):
            run.look()

    # --- for clients -----------------------------------------------------------------------

    def runs(self, thread_id: str) -> list[SampledRun]:
        """Return the active runs of a thread: its own, and those of its background tasks."""
        return [one for one in self._runs.values() if _covers(thread_id, one.thread_id)]

    def calls(self, thread_id: str) -> list[SampledCall]:
        """Return the open calls of a thread's runs, oldest first."""
        return [call for run in self.runs(thread_id) for call in run.calls.values()]

    def take(self, thread_id: str, responses: Mapping[str, InputResponse]) -> None:
        """Process a client's answers to calls of a thread.

        Answers without a call are ignored. If no run of the thread is on this server, they are kept
        for a while.
        """
        runs = self.runs(thread_id)
        for run in runs:
            run.take(responses)
        if runs:
            return
        now = anyio.current_time()
        self._kept = {one: kept for one, kept in self._kept.items() if kept[0] > now}
        found = {
            digest_in(key): answer_in(response)
            for key, response in responses.items()
            if is_call(key)
        }
        if found:
            kept = self._kept.get(thread_id, (0.0, {}))[1] | found
            newest = dict([*kept.items()][-MOST_KEPT:])
            self._kept[thread_id] = (now + LEASE_SECONDS, newest)

    async def gathered(self, thread_id: str) -> list[SampledCall]:
        """Return the open calls of a thread, after a short wait for more calls."""
        with anyio.move_on_after(GATHER_SECONDS):
            for run in self.runs(thread_id):
                if run.calls:
                    await run.gathered()
        return self.calls(thread_id)

    def lease(self, thread_id: str, seconds: float = LEASE_SECONDS) -> None:
        """Extend the time that calls of a thread wait, because their client may come back."""
        if not self.runs(thread_id):
            return
        until = anyio.current_time() + seconds
        self._leases[thread_id] = max(until, self._leases.get(thread_id, 0.0))

    @contextmanager
    def attending(self, thread_id: str) -> Generator[None]:
        """Register a client that offers its model; calls wait for its return after the block."""
        for run in self.runs(thread_id):
            run.offer = "tools"
        self._elsewhere.pop(thread_id, None)
        self._attendants.append(thread_id)
        try:
            yield
        finally:
            self._attendants.remove(thread_id)
            self.lease(thread_id, UNATTENDED_SECONDS)

    @contextmanager
    def watching(self, thread_id: str, wake: Callable[[], None]) -> Generator[None]:
        """Call `wake` for each new call of a thread, and immediately if there is one already."""
        entry = (thread_id, wake)
        self._watchers.append(entry)
        try:
            if self.calls(thread_id):
                wake()
            yield
        finally:
            self._watchers.remove(entry)


def _covers(thread_id: str, other: str) -> bool:
    """Whether `other` is this thread, or the thread of one of its background tasks."""
    return other == thread_id or other.startswith(f"{thread_id}.")
