"""Runs as background work: they live in the app's task group, requests only wait for them.

So a client that gives up, disconnects or times out ends its wait and nothing else. What a run is
doing is in the journal; what this module holds in memory is only who works on what right now. A
run left behind by a server that died is continued by the next one that sees it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import JsonValue

from harness.agent import Agent, RunOptions, RunResult
from harness.checkpoint.base import Batch, Checkpointer, Interrupt, Run
from harness.errors import HarnessError, RunEnded, ThreadBusy, UnknownRun, UnknownThread
from harness.limits import Limits
from harness.loop.events import Emit, Event, StreamMode
from harness.loop.run_context import RunControl
from harness.messages import ToolCall, ToolMessage, new_id
from server.results import unknown
from server.thread_gate import GateHolder, ThreadGates

__all__ = ["RunManager", "Servers", "Snapshot", "call_id_of"]

QUEUE_SECONDS = 30.0
"""How long a driven call waits for other calls on its thread."""

POLL_SECONDS = 0.5
"""How often a run of another server process is looked at."""

WRITERS = ("write_file", "edit_file")

logger = logging.getLogger(__name__)


class Servers(Protocol):
    """Says which server processes live, and lets one at a time take over what dead ones left."""

    def is_alive(self, owner: str) -> bool:
        """Whether the server with this id is running. May block."""
        ...

    def takeover(self) -> AbstractAsyncContextManager[None]:
        """Keep every other process from resuming a run meanwhile."""
        ...


class Changed(Protocol):
    """Told when a thread has moved on."""

    def __call__(self, thread_id: str, *, files: Iterable[str] = (), is_new: bool = False) -> None:
        """Announce it soon; must not block."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where a run stands.

    Attributes:
        run: Its record.
        questions: Open questions, when it waits for answers.
        results: Results of a driven run's calls, when this process carried it.
    """

    run: Run
    questions: Sequence[Interrupt] = ()
    results: Sequence[ToolMessage] = ()


@dataclass(slots=True)
class _Live:
    """A run this process works on."""

    run_id: str
    thread_id: str
    brief: bool = False
    control: RunControl = field(default_factory=RunControl)
    finished: anyio.Event = field(default_factory=anyio.Event)
    listeners: list[Emit] = field(default_factory=list[Emit])
    written: dict[str, None] = field(default_factory=dict[str, None])
    result: RunResult | None = None
    error: HarnessError | None = None


_Work = Callable[[Agent, RunOptions], Awaitable[RunResult]]


def call_id_of(run_id: str) -> str:
    """Return the id of the tool call of a driven run."""
    return "call_" + run_id.partition("_")[2]


class RunManager:
    """Starts, watches, answers and ends runs.

    Args:
        agent: Returns the agent, built when it is first needed.
        checkpointer: The journal.
        group: Where runs live.
        owner: Id of this server process.
        servers: Which other processes live.
        changed: Told when a thread moved on.
        limits: Bounds of each run tree.
    """

    def __init__(
        self,
        agent: Callable[[], Agent],
        checkpointer: Checkpointer,
        group: TaskGroup,
        owner: str,
        servers: Servers,
        changed: Changed,
        limits: Limits,
    ) -> None:
        self._agent = agent
        self._journal = checkpointer
        self._group = group
        self._owner = owner
        self._servers = servers
        self._changed = changed
        self._limits = limits
        self._live: dict[str, _Live] = {}
        self._gates = ThreadGates()
        self._starting: dict[str, _Live] = {}

    @property
    def active(self) -> int:
        """How many runs this process works on."""
        return len(self._live)

    # --- starting --------------------------------------------------------------------------

    async def drive(self, tool: str, args: dict[str, JsonValue], thread_id: str | None) -> Snapshot:
        """Run one tool call of a client's own model and return where it ended.

        Calls on one thread wait for each other. A request that is dropped while it waits in line
        runs nothing; once its call has begun, the call is finished.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: A delegated run moves the thread, a question is open on it, or the calls
                before this one took too long.
        """
        live = _Live(new_id("run"), thread_id or new_id("thr"), brief=True)
        await self._enter(live, is_new=thread_id is None)
        call = ToolCall(call_id_of(live.run_id), tool, args)
        _note_written(live, tool, args)

        async def work(agent: Agent, options: RunOptions) -> RunResult:
            return await agent.adrive([call], thread_id=live.thread_id, options=options)

        self._spawn(live, work, modes=(), is_new=thread_id is None)
        await live.finished.wait()
        return await self._outcome(live)

    async def start(
        self,
        goal: str,
        *,
        thread_id: str | None = None,
        agent: str | None = None,
        key: str | None = None,
    ) -> str:
        """Begin to work on a goal and return the run's id once the input is in the journal.

        Args:
            goal: What shall be done.
            thread_id: The thread to go on with; a new one by default.
            agent: A subagent to give the goal to directly.
            key: Of the caller's choice: a second start with it finds the first one's run.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: The thread is in use.
            HarnessError: The input was refused; nothing was stored.
        """
        live = _Live(new_id("run"), thread_id or new_id("thr"))
        if key is not None and (known := await self._started_before(key, live)) is not None:
            return known
        try:
            await self._enter(live, is_new=thread_id is None)

            async def work(main: Agent, options: RunOptions) -> RunResult:
                if agent is None:
                    return await main.ainvoke(goal, thread_id=live.thread_id, options=options)
                args: dict[str, JsonValue] = {"description": goal, "subagent_type": agent}
                call = ToolCall(call_id_of(live.run_id), "task", args)
                return await main.adrive([call], thread_id=live.thread_id, options=options)

            self._spawn(live, work, key=key, is_new=thread_id is None)
            await live.control.accepted.wait()
        finally:
            live.control.accepted.set()
            if key is not None:
                self._starting.pop(key, None)
        if live.error is not None:
            raise live.error
        return live.run_id

    async def _started_before(self, key: str, live: _Live) -> str | None:
        """Return the run that this key has started, or reserve the key for `live`."""
        while (other := self._starting.get(key)) is not None:
            await other.control.accepted.wait()
        self._starting[key] = live
        known = await self._journal.find_runs(idempotency_key=key, limit=1)
        if not known:
            return None
        del self._starting[key]
        live.control.accepted.set()
        return known[0].id

    async def _enter(self, live: _Live, *, is_new: bool) -> None:
        await self._take_gate(live)
        if is_new:
            return
        try:
            await self._require_idle(live.thread_id)
        except BaseException:
            self._gates.leave(live.thread_id)
            raise

    async def _take_gate(self, live: _Live) -> None:
        thread_id = live.thread_id
        holder = self._gates.holder(thread_id)
        if holder is None or holder.brief:
            holder = await self._gates.enter(
                thread_id, GateHolder(live.run_id, live.brief), QUEUE_SECONDS
            )
        if holder is not None:
            raise ThreadBusy(_busy(thread_id, holder.run_id, "is working on it"))

    @asynccontextmanager
    async def exclusive(self, thread_id: str) -> AsyncGenerator[str]:
        """Keep every run of this process off an idle thread; yields an id to record changes under.

        Raises:
            UnknownThread, ThreadBusy: As for `start`.
        """
        live = _Live(new_id("run"), thread_id)
        await self._enter(live, is_new=False)
        try:
            yield live.run_id
        finally:
            self._gates.leave(thread_id)

    async def _require_idle(self, thread_id: str) -> None:
        runs = await self._journal.find_runs(thread_id=thread_id, limit=1)
        if not runs:
            known = [info.thread_id for info in await self._journal.threads(limit=200)]
            advice = "Call threads to list them, or leave thread_id out to begin a new one."
            raise UnknownThread(unknown("thread", thread_id, known, advice))
        newest = runs[0]
        if newest.status == "needs_approval":
            raise ThreadBusy(
                f"Thread {thread_id} waits for an answer in run {newest.id}; nothing was done. "
                f'See the question with threads(thread_id="{thread_id}"), answer it with '
                f'reply(run_id="{newest.id}", …) or drop it with cancel(run_id="{newest.id}").'
            )
        if newest.status == "running":
            if await self._is_dead(newest.owner):
                self._group.start_soon(self._adopt, newest)
            raise ThreadBusy(_busy(thread_id, newest.id, "is working on it"))

    # --- carrying --------------------------------------------------------------------------

    def _spawn(
        self,
        live: _Live,
        work: _Work,
        *,
        modes: Sequence[StreamMode] = ("tasks", "checkpoints"),
        key: str | None = None,
        is_new: bool = False,
    ) -> None:
        options = RunOptions(
            run_id=live.run_id,
            emit=lambda event: self._hear(live, event),
            modes=modes,
            limits=self._limits,
            control=live.control,
            owner=self._owner,
            idempotency_key=key,
        )
        self._live[live.run_id] = live
        self._group.start_soon(self._carry, live, work, options, is_new)

    async def _carry(self, live: _Live, work: _Work, options: RunOptions, is_new: bool) -> None:
        """Carry a run to its pause or end. Nothing it does may end the task group."""
        try:
            live.result = await work(self._agent(), options)
            await self._keep_tool_answer(live)
        except HarnessError as error:
            live.error = error
        except Exception as error:
            logger.exception("run %s failed", live.run_id)
            live.error = HarnessError(
                f"run {live.run_id} failed inside the server ({type(error).__name__}: {error}); "
                "the server's log has the details. What it had committed stays."
            )
        finally:
            del self._live[live.run_id]
            self._gates.leave(live.thread_id)
            live.control.accepted.set()
            live.finished.set()
        self._changed(live.thread_id, files=list(live.written), is_new=is_new)
        await self._go_on_if_answered(live)

    def _hear(self, live: _Live, event: Event) -> None:
        for listener in list(live.listeners):
            listener(event)
        if event.data.get("event") == "tool_start":
            _note_written(live, event.data.get("name"), event.data.get("args"))
        if event.mode == "checkpoints":
            self._changed(live.thread_id)

    async def _keep_tool_answer(self, live: _Live) -> None:
        """Let the record of a tool call that took long say what came out: no model summed it up."""
        result = live.result
        if result is None or result.run.kind != "drive" or result.run.status != "done":
            return
        messages = _results(result, live.run_id)
        live.result = replace(result, results=messages)
        if messages and not live.brief:
            run = replace(result.run, answer=messages[-1].text)
            live.result = replace(live.result, run=run)
            await self._journal.commit(Batch(run.thread_id, runs=[run]))

    async def _go_on_if_answered(self, live: _Live) -> None:
        """Resume a run that got its answer in the moment in which it went to wait for it."""
        result = live.result
        if result is None or result.run.status != "needs_approval":
            return
        open_ids = {one.id for one in result.interrupts}
        known = await self._journal.interrupts(live.run_id)
        if any(one.answered for one in known if one.id in open_ids):
            await self._resume(result.run, {})

    async def _outcome(self, live: _Live) -> Snapshot:
        if live.error is not None:
            raise live.error
        if live.result is None:
            raise HarnessError(
                f"The server is stopping. Run {live.run_id} goes on when it is started again."
            )
        return Snapshot(live.result.run, live.result.interrupts, live.result.results)

    # --- watching --------------------------------------------------------------------------

    async def wait(self, run_id: str, seconds: float, emit: Emit | None = None) -> Snapshot:
        """Return where a run stands when it pauses or ends, or after `seconds`.

        Raises:
            UnknownRun: There is no such run.
        """
        with anyio.move_on_after(seconds):
            while (run := await self._find(run_id)).status == "running":
                live = self._live.get(run_id)
                if live is not None:
                    await self._listen(live, emit)
                elif not await self._is_dead(run.owner) or not await self._adopt(run):
                    await anyio.sleep(POLL_SECONDS)
        return await self.snapshot(run_id)

    async def _listen(self, live: _Live, emit: Emit | None) -> None:
        if emit is not None:
            live.listeners.append(emit)
        try:
            await live.finished.wait()
        finally:
            if emit is not None:
                live.listeners.remove(emit)

    async def snapshot(self, run_id: str) -> Snapshot:
        """Return where a run stands now.

        Raises:
            UnknownRun: There is no such run.
        """
        run = await self._find(run_id)
        if run.status != "needs_approval":
            return Snapshot(run)
        questions = [one for one in await self._journal.interrupts(run_id) if not one.answered]
        return Snapshot(run, questions)

    async def tool_result(self, run: Run) -> ToolMessage | None:
        """Return the result of a driven run's call, from its thread."""
        state = await self._agent().get_state(run.thread_id)
        wanted = call_id_of(run.id)
        for message in reversed(state.values.get("messages", ())):
            if isinstance(message, ToolMessage) and message.tool_call_id == wanted:
                return message
        return None

    async def _find(self, run_id: str) -> Run:
        run = await self._journal.run(run_id)
        if run is None:
            known = [one.id for one in await self._journal.find_runs(limit=200)]
            advice = "Call threads to see recent runs, or task to start one."
            raise UnknownRun(unknown("run", run_id, known, advice))
        return run

    # --- steering --------------------------------------------------------------------------

    async def reply(self, run_id: str, answers: Mapping[str, JsonValue]) -> None:
        """Store answers and let the run go on; without answers, let a failed run try again.

        Raises:
            UnknownRun, RunEnded, UnknownInterrupt, InvalidAnswer: Nothing was stored.
            ThreadBusy: The run cannot go on now.
        """
        run = await self._find(run_id)
        if run_id in self._live:
            await self._agent().answer(run_id, answers)
            return
        if run.status == "running" and not await self._is_dead(run.owner):
            raise ThreadBusy(_busy(run.thread_id, run_id, "is being worked on"))
        await self._resume(run, answers)

    async def _resume(self, run: Run, answers: Mapping[str, JsonValue]) -> None:
        live = _Live(run.id, run.thread_id)
        await self._take_gate(live)

        async def work(agent: Agent, options: RunOptions) -> RunResult:
            return await agent.aresume(run.id, answers, options=options)

        spawned = False
        try:
            async with self._servers.takeover():
                now = await self._find(run.id)
                if now.status == "running" and not await self._is_dead(now.owner):
                    raise ThreadBusy(_busy(run.thread_id, run.id, "is being worked on"))
                self._spawn(live, work)
                spawned = True
                await live.control.accepted.wait()
        finally:
            if not spawned:
                self._gates.leave(run.thread_id)
        if live.error is not None:
            raise live.error

    async def cancel(self, run_id: str, reason: str) -> Run:
        """End a run; what it has committed stays. A run that has ended is returned as it is.

        Raises:
            UnknownRun: There is no such run.
            ThreadBusy: Another living server process works on it.
        """
        live = self._live.get(run_id)
        if live is not None:
            live.control.cancel(reason)
            await live.finished.wait()
        run = await self._find(run_id)
        if run.status in ("done", "failed", "cancelled"):
            return run
        if run.status == "running" and not await self._is_dead(run.owner):
            raise ThreadBusy(
                f"Run {run_id} belongs to another server process that is alive, so it was not "
                "cancelled. Cancel it through the client that started it."
            )
        run = replace(run, status="cancelled", reason=reason)
        await self._journal.commit(Batch(run.thread_id, runs=[run]))
        self._changed(run.thread_id)
        return run

    # --- after a crash ---------------------------------------------------------------------

    async def recover(self) -> list[str]:
        """Continue the runs of servers that died, and return their ids."""
        continued: list[str] = []
        for run in await self._journal.find_runs(status="running", limit=1_000):
            if run.id not in self._live and await self._is_dead(run.owner):
                if await self._adopt(run):
                    continued.append(run.id)
        if continued:
            logger.warning("continuing %d runs of a server that ended", len(continued))
        return continued

    async def _is_dead(self, owner: str | None) -> bool:
        if owner == self._owner:
            return False
        return owner is None or not await anyio.to_thread.run_sync(self._servers.is_alive, owner)

    async def _adopt(self, run: Run) -> bool:
        """Continue a run of a dead process; return whether it is this process's run now."""
        if run.id in self._live:
            return True
        try:
            await self._resume(run, {})
            return True
        except RunEnded as error:
            ended = replace(run, status="failed", reason=str(error))
            await self._journal.commit(Batch(run.thread_id, runs=[ended]))
        except HarnessError as error:
            logger.warning("run %s cannot be continued: %s", run.id, error)
        return False


def _busy(thread_id: str, run_id: str, what: str) -> str:
    return (
        f"Thread {thread_id} is in use: run {run_id} {what}; nothing was done. Wait for it with "
        f'wait(run_id="{run_id}"), end it with cancel(run_id="{run_id}"), or use another thread.'
    )


def _note_written(live: _Live, tool: object, args: object) -> None:
    """Remember which file a call writes, for the notice that goes out after it."""
    if tool in WRITERS and isinstance(args, dict):
        given = cast("dict[str, object]", args)
        path = given.get("file_path", given.get("path"))
        if isinstance(path, str):
            live.written["/" + path.lstrip("/")] = None


def _results(result: RunResult, run_id: str) -> tuple[ToolMessage, ...]:
    if result.results:
        return tuple(result.results)
    wanted = call_id_of(run_id)
    return tuple(
        message
        for message in result.state.get("messages", ())
        if isinstance(message, ToolMessage) and message.tool_call_id == wanted
    )
