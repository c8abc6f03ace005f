"""Terminal session: follows one run from its goal to its end at a terminal."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeAlias

import anyio

from ...harness._internal.concurrency import raising_one
from ...harness._internal.records import record
from .link import Link
from .places import Place
from .questions import Asker, Interrupted
from .states import CalledOff, Exit, LinkError, Lost, NotStarted, RunState, Task, exit_code
from .steps import Steps
from .views import View

__all__ = ["Interrupts", "Outcome", "Session", "advice", "interrupts"]

LOOK_SECONDS = 0.3
"""The longest time between two reads of stored events; progress triggers earlier ones."""

COMMAND = "deep-agent-mcp"

Advise: TypeAlias = Callable[[RunState, Exit, str], str]
"""What to do next about a run whose goal a subagent had; empty for the main agent."""


@record
class Outcome:
    """The outcome of a run.

    Attributes:
        state: Its status.
        code: The exit code for it.
    """

    state: RunState
    code: Exit


@dataclass(slots=True, eq=False)
class Interrupts:
    """What Ctrl-C requests: first to pause, then to end at once."""

    pause: anyio.Event = field(default_factory=anyio.Event)
    end: anyio.Event = field(default_factory=anyio.Event)

    def hear(self) -> None:
        """Count one signal."""
        (self.end if self.pause.is_set() else self.pause).set()


@contextmanager
def interrupts() -> Generator[Interrupts]:
    """Yield the state that SIGINT and SIGTERM set; a third ends the process. Main thread only."""
    import asyncio

    heard, loop, count = Interrupts(), asyncio.get_running_loop(), 0

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 2:
            os._exit(128 + number)
        loop.call_soon_threadsafe(heard.hear)

    handled = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in handled}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Session:
    """Shows runs of one place, and answers their questions.

    Args:
        place: Where they work.
        view: Where they are shown.
        asker: Decides on questions.
        advise: Returns what to do next about a run that has paused or ended, also from the name of
            the subagent that had its goal.
        require_model: Raises NotStarted if the model of an agent cannot be used.
        on_begun: Called with a run that has begun or continues, before it is followed.
    """

    def __init__(
        self,
        place: Place,
        view: View,
        asker: Asker,
        advise: Advise = lambda state, code, subagent: "",
        require_model: Callable[[str], object] = lambda agent: None,
        on_begun: Callable[[RunState], object] = lambda state: None,
    ) -> None:
        self._place = place
        self._link: Link = place.link
        self._view = view
        self._asker = asker
        self._advise = advise
        self._subagent = ""
        self._require_model = require_model
        self._on_begun = on_begun

    async def run(self, task: Task, heard: Interrupts) -> Outcome:
        """Start a run with a goal, and follow it until it pauses or ends.

        Raises:
            NotStarted: The server refuses it, its model cannot be used, or the person has
                interrupted already.
            LinkError: The server was lost; the run may have started.
        """
        self._require_model(task.agent)
        self._subagent = task.agent
        _require_wanted(heard)
        state = await _accepted(self._link.start(task))
        return await self._stay(state, heard)

    async def resume(self, run_id: str, heard: Interrupts) -> Outcome:
        """Continue a run that paused, failed, or has questions; follow one that works.

        Raises:
            NotStarted: There is no such run, it cannot continue, or the person has interrupted
                already.
            LinkError: The server was lost.
        """
        after = 0
        try:
            state = await self._link.look(run_id)
            run_id = state.run_id  # it may have been said by its thread
            self._subagent = await self._link.subagent_of(run_id)
            stopped = state.status in ("paused", "failed", "needs_approval")
            if stopped and (agent := await self._link.agent_of(run_id)) is not None:
                self._require_model(agent)
            if state.status in ("paused", "failed"):
                after = await self._newest_event(run_id)
        except LinkError as error:
            raise NotStarted(str(error)) from None
        if state.status in ("paused", "failed"):
            _require_wanted(heard)
            state = await _accepted(self._link.answer(run_id, {}))
        return await self._stay(state, heard, after)

    async def _stay(self, state: RunState, heard: Interrupts, after: int = 0) -> Outcome:
        """Follow a run; pause it if the reader of the output has gone."""
        self._on_begun(state)
        try:
            self._view.begun(state)
            return await self._carry(state, heard, after)
        except BrokenPipeError:
            await self._place.stop(state.run_id)
            raise
        except LinkError as error:
            said = f"{error}\n{self._advise(state, Exit.FAILED, self._subagent)}"
            raise LinkError(said.rstrip()) from None

    async def _newest_event(self, run_id: str) -> int:
        after, more = 0, True
        while more:
            events, more = await self._link.events(run_id, after)
            after = events[-1]["seq"] if events else after
        return after

    async def _carry(self, state: RunState, heard: Interrupts, after: int) -> Outcome:
        watching = _Watching(self._place, self._view, state.run_id, after)
        refused: set[str] = set()
        while True:
            state = await watching.until_it_stops(heard)
            if state.status != "needs_approval" or heard.pause.is_set():
                break
            try:
                with self._view.paused():
                    asked = state.questions
                    answers = await self._asker.answers(self._link, state.run_id, asked)
            except Interrupted:
                heard.pause.set()
                break
            if not answers or not refused.isdisjoint(answers):
                break
            self._view.doing("goes on", "")
            try:
                state = await self._link.answer(state.run_id, answers)
            except LinkError as error:  # the question is still open
                self._view.note(str(error))
                if not self._asker.is_person:  # its next answer would be refused again
                    refused.update(answers)
        return self._settled(await self._link.whole_answer(state), heard)

    def _settled(self, state: RunState, heard: Interrupts) -> Outcome:
        code = exit_code(state.status, state.reason)
        if code is Exit.STILL_AT_WORK or (code is not Exit.DONE and heard.pause.is_set()):
            code = Exit.INTERRUPTED
        self._view.settled(state, self._advise(state, code, self._subagent))
        return Outcome(state, code)


async def _accepted(request: Awaitable[RunState]) -> RunState:
    """Return the run that the server has started or continued.

    Raises:
        Lost: It may have, but was lost before it answered.
        NotStarted: It refused, or was never reached.
    """
    try:
        return await request
    except Lost:
        raise
    except LinkError as error:
        raise NotStarted(str(error)) from None


def _require_wanted(heard: Interrupts) -> None:
    """Raise CalledOff if the person has interrupted."""
    if heard.pause.is_set():
        raise CalledOff


def advice(is_local: bool, options: str) -> Advise:
    """Return the command that continues a run.

    Args:
        is_local: Whether the run ends with this process.
        options: The options that find the run again, such as ` --state-dir DIR`.
    """

    def advise(state: RunState, code: Exit, subagent: str) -> str:
        to = f" --subagent {shlex.quote(subagent)}" if subagent else ""
        resume = f"{COMMAND} run --resume {state.run_id}{options}"
        another = f'{COMMAND} run --thread {state.thread_id}{options}{to} "…"'
        match state.status:
            case "done":
                return f"Go on: {another}"
            case "needs_approval":
                return f"It waits for an answer. Decide: {resume}"
            case "running" | "queued" if code is Exit.FAILED and not is_local:
                return f"It may still be at work. Come back: {resume}"
            case "running" | "queued" if not is_local:
                return f"The server works on it. Come back: {resume}"
            case "paused" | "running" | "queued":
                return f"Go on: {resume}"
            case "failed" if code is Exit.LIMIT:
                return f"What it did is kept. Go on with new limits: {another}"
            case "failed":
                return f"What it did is kept. Once the cause is fixed, continue: {resume}"
            case _:
                return ""

    return advise


class _Watching:
    """Waits for a run, and shows its activity meanwhile."""

    def __init__(self, place: Place, view: View, run_id: str, after: int) -> None:
        self._place = place
        self._link = place.link
        self._view = view
        self._run_id = run_id
        self._after = after
        self._steps = Steps()
        self._wake = anyio.Event()

    async def until_it_stops(self, heard: Interrupts) -> RunState:
        """Return the status of the run once it pauses or ends, or the person leaves."""
        found: list[RunState] = []
        async with raising_one(), anyio.create_task_group() as group:
            group.start_soon(self._interrupted, heard, group.cancel_scope)
            group.start_soon(self._read_events)
            while not found:
                state = await self._link.wait(self._run_id, self._on_line)
                if state.status not in ("running", "queued"):
                    found.append(state)
                elif state.reason:
                    self._view.note(state.reason)
                    await anyio.sleep(LOOK_SECONDS)
            group.cancel_scope.cancel()
        await self._read_page()
        return found[0] if found else await self._link.look(self._run_id)

    async def _interrupted(self, heard: Interrupts, scope: anyio.CancelScope) -> None:
        await heard.pause.wait()
        if not self._place.pause(self._run_id):
            scope.cancel()
            return
        self._view.note("It pauses after this step. Press Ctrl-C again to end at once.")
        await heard.end.wait()
        await self._place.stop(self._run_id)
        scope.cancel()

    def _on_line(self, line: str) -> None:
        used = self._steps
        parts = [f"{used.tokens:,} tokens"] if used.tokens else []
        self._view.doing(line, ", ".join(parts))
        self._wake.set()

    async def _read_events(self) -> None:
        while True:
            await self._read_page()
            self._wake = anyio.Event()
            with anyio.move_on_after(LOOK_SECONDS):
                await self._wake.wait()

    async def _read_page(self) -> None:
        """Show all stored events that have not been shown yet."""
        more = True
        while more:
            events, more = await self._link.events(self._run_id, self._after)
            for one in events:
                if one["seq"] > self._after:
                    self._after = one["seq"]
                    self._show(one)
        if self._steps.wrote_todos and self._view.wants_steps:
            await self._show_todos()
            self._steps.wrote_todos = False

    def _show(self, event: dict[str, Any]) -> None:
        self._view.event(event)
        if self._view.wants_steps:
            for step in self._steps.hear(event):
                self._view.step(step)

    async def _show_todos(self) -> None:
        state = await self._link.look(self._run_id)
        self._view.todos(json.loads(await self._link.read(f"thread://{state.thread_id}/todos")))
