"""Run watching: the status of runs for their callers, and waiting for a change.

A run does not depend on who waits for it. It may work in this process, wait for its turn, work on
another server, or have lost its server in a crash. For the caller it makes no difference: events of
a run on another server are read from the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import anyio

from ...harness.checkpoint.base import Checkpointer, Interrupt, Run, RunEvent
from ...harness.errors import (
    HarnessError,
    JournalAway,
    UnknownRun,
    UnknownThread,
)
from ...harness.loop.run.choices import RunChoices
from ...harness.loop.run.events import Emit, Event, StreamMode
from ...harness.messages.message import ToolMessage
from ..auth.caller import current_caller
from ..auth.owned_journal import OwnedJournal
from ..results import unknown
from ..sampling.queue import SamplingQueue
from .accounts import Snapshot
from .active_run import MAX_UNHEARD, ActiveRun, call_id
from .contracts import POLL_SECONDS, moved_on
from .goals import structured_result
from .progress import Todos
from .starting import RunStarter

if TYPE_CHECKING:
    from ...harness.middleware.todo_list import Todo

__all__ = ["FarEvents", "RunWatcher"]

_PAGE = 200


class FarEvents:
    """The stored events of a run that another server works on.

    Args:
        journal: The journal.
        run_id: The run.
        emit: Receives them, if given.
    """

    def __init__(self, journal: Checkpointer, run_id: str, emit: Emit | None) -> None:
        self._journal = journal
        self._run_id = run_id
        self._emit = emit
        self._newest: int | None = None

    async def pass_on(self) -> None:
        """Pass on the events stored since the last call; the first call only finds the newest one.

        Callers know the earlier events when they begin to wait, also after a takeover. While the
        journal cannot be reached, nothing is passed on.
        """
        if self._emit is not None:
            with suppress(JournalAway):
                await self._pass_on(self._emit)

    async def _pass_on(self, emit: Emit) -> None:
        unheard: deque[RunEvent] = deque(maxlen=MAX_UNHEARD)
        is_first, newest = self._newest is None, self._newest or 0
        while page := await self._journal.events(self._run_id, after=newest, limit=_PAGE):
            newest = page[-1].seq
            unheard += page
            if len(page) < _PAGE:
                break
        self._newest = newest
        for one in () if is_first else unheard:
            mode = cast("StreamMode", one.mode)
            emit(Event(mode, one.data, "", one.run_id, one.seq, one.path))


class RunWatcher(RunStarter):
    """Watches runs, and starts them; see `RunStarter` for the arguments."""

    @property
    def sampling(self) -> SamplingQueue:
        """Where runs put the calls that a client's model has to answer."""
        return self._supervisor.sampling

    async def wait(
        self, run_id: str, seconds: float, emit: Emit | None = None, *, to_lend: bool = False
    ) -> Snapshot:
        """Wait until a run pauses or ends, or for `seconds`; return its status.

        Args:
            run_id: The run.
            seconds: How long to wait at most.
            emit: Receives its events.
            to_lend: Also return when the run wants to call the client's model.

        Raises:
            UnknownRun: There is no such run.
        """
        supervisor = self._supervisor
        stopping = supervisor.stopping
        with anyio.move_on_after(seconds) as scope, ExitStack() as watching:
            watching.enter_context(stopping.waiting(scope))
            watch = watching.enter_context(supervisor.servers.run_changes.watching(run_id))
            far = FarEvents(self._journal, run_id, emit)
            live = self._own_live(run_id)
            if to_lend:
                thread_id = (live or await self._find(run_id)).thread_id
                watching.enter_context(self.sampling.watching(thread_id, scope.cancel))
            if live is not None:  # a quick run would end while the journal is asked for it
                await live.listen(emit)
            run = await self._find_once_reachable(run_id)
            while _is_at_work(run) or await self._goes_on(run):
                live = supervisor.live.get(run_id)
                if live is not None:
                    await live.listen(emit)
                elif stopping.has_begun:
                    break
                elif run.status == "queued" and not await self._queue.is_left(run):
                    await far.pass_on()
                    await watch.next(run)
                elif run.status == "needs_approval" and supervisor.goes_on(run_id):
                    await supervisor.decided(run_id)
                elif run.status == "needs_approval":  # its process continues at once, or is dead
                    with anyio.move_on_after(2 * POLL_SECONDS):
                        await watch.next(run)
                    await supervisor.adopt(run)
                elif not await supervisor.is_left(run) or not await supervisor.adopt(run):
                    await far.pass_on()
                    await watch.next(run)
                run = await self._find_once_reachable(run_id)
        return await self.snapshot(run_id)

    async def _find_once_reachable(self, run_id: str) -> Run:
        """Return a run; wait while the journal cannot be reached."""
        while True:
            try:
                return await self._find(run_id)
            except JournalAway:
                await anyio.sleep(POLL_SECONDS)

    async def _goes_on(self, run: Run) -> bool:
        """Whether a run waits although it has all its answers: it got one just as it paused."""
        asked = await self.asked(run.id) if run.status == "needs_approval" else ()
        return bool(asked) and all(one.answered for one in asked)

    async def snapshot(self, run_id: str) -> Snapshot:
        """Return the current status of a run.

        Raises:
            UnknownRun: There is no such run.
        """
        run = await self._find(run_id)
        if run.status == "needs_approval":
            questions = await self.questions(run_id)
            if questions:
                return Snapshot(run, questions, calls=self.sampling.calls(run.thread_id))
            run = await self._find(run_id)
            if self._supervisor.goes_on(run_id) and await self._goes_on(run):
                run = replace(run, status="running")
        if run.status == "queued":
            stopping = self._supervisor.stopping.has_begun
            (waits_for,) = await self._queue.threads.waits_for(run)
            return Snapshot(run, stopping=stopping, waits_for=waits_for)
        if run.status == "running":
            calls = self.sampling.calls(run.thread_id)
            if self._supervisor.stopping.has_begun:
                return Snapshot(run, calls=calls, stopping=True)
            stuck = None if run_id in self._supervisor.live else self._supervisor.stuck.get(run_id)
            return Snapshot(run, calls=calls, stuck=stuck)
        if run.kind == "drive" and run.status == "done":
            result = await self._tool_result(run)
            # No model writes an answer, so the result of the call is the answer.
            data = structured_result(result)
            answer = result.text if result else None
            is_task = result is not None and result.name == "task"
            account = await self._accounts.of(run) if is_task else None
            return Snapshot(replace(run, answer=answer), (), result, data=data, account=account)
        data = await self._supervisor.structured.data_of(run, self._agent)
        return Snapshot(run, data=data, account=await self._accounts.of(run))

    async def is_stored(self, run_id: str) -> bool:
        """Whether a run is in the journal. A driven run is stored with its first step."""
        return await self._journal.run(run_id) is not None

    def doing(self, run_id: str) -> str | None:
        """Return a line about what a run is doing now, if it works in this process."""
        live = self._supervisor.live.get(run_id)
        if live is None:
            away = run_id in self._supervisor.journal_wait
            return "the journal cannot be used now; the run waits for it" if away else None
        asked = live.sampled.calls.values() if live.sampled is not None else ()
        if asked:
            return f"{', '.join(one.agent for one in asked)}: waiting for the client's model"
        return live.line

    async def todos(self, run_id: str) -> Todos:
        """Return how many todos of a run's thread are done, and how many there are.

        A list with no open todos is left from earlier work, and counts as none.
        """
        try:
            state = await self._agent().get_state((await self._find(run_id)).thread_id)
        except HarnessError:  # it has none yet, or it cannot be read; nothing depends on it
            return 0, 0
        todos: Sequence[Todo] = state.values.get("todos", ())
        done = sum(one.status == "completed" for one in todos)
        return (done, len(todos)) if done < len(todos) else (0, 0)

    async def choices_of(self, run: Run) -> RunChoices | None:
        """Return the options that its caller chose for a run."""
        await self._agent.prepare(run.id)
        return await self._agent(run.id).choices_of(run.id)

    async def asked(self, run_id: str) -> Sequence[Interrupt]:
        """Return all questions of a run, answered or open, even while it works on other calls."""
        asked = await self._journal.interrupts(run_id)
        return [one for one in asked if one.is_question]

    async def questions(self, run_id: str) -> list[Interrupt]:
        """Return the open questions of a run."""
        return [one for one in await self.asked(run_id) if not one.answered]

    async def moved_on(self, run: Run) -> None:
        """Wait for a change in a run, whichever process makes it."""
        await moved_on(self._journal, self._supervisor.servers.run_changes, run)

    async def _tool_result(self, run: Run) -> ToolMessage | None:
        """Return the result of a driven run's call; None after a rewind to before it.

        Raises:
            UnknownRun: It was just deleted, with its thread.
        """
        try:
            await self._agent.prepare(run.thread_id)
            state = await self._agent(run.thread_id).get_state(run.thread_id)
        except UnknownThread:
            await self._find(run.id)
            raise
        wanted = call_id(run.id)
        for message in reversed(state.values.get("messages", ())):
            if isinstance(message, ToolMessage) and message.tool_call_id == wanted:
                return message
        return None

    def _own_live(self, run_id: str) -> ActiveRun | None:
        """Return a run of the caller's that is executed here; None if it is somebody else's."""
        return self._supervisor.live.get(run_id) if current_caller.get().owns(run_id) else None

    async def _find(self, run_id: str) -> Run:
        owned = current_caller.get().owns(run_id)
        run = await self._journal.run(run_id) if owned else None
        live = self._own_live(run_id)
        if run is None and live is not None:
            return self._unrecorded(live)
        if run is None:
            known = [one.id for one in await OwnedJournal(self._journal).find_runs(limit=200)]
            advice = "Call threads to see recent runs, or task to start one."
            raise UnknownRun(unknown("run", run_id, known, advice))
        return run


def _is_at_work(run: Run) -> bool:
    """Whether a run continues by itself: it works, or waits for its turn."""
    return run.status in ("queued", "running")
