"""Run administration for the command line, safe beside running servers."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread
from pydantic import JsonValue

from ...harness.checkpoint.base import (
    ENDED,
    Interrupt,
    Run,
    RunStatus,
)
from ...harness.errors import HarnessError, Superseded, UnknownRun
from ...harness.limits.limits import Used
from ...harness.redaction.rules import Rule
from ...harness.subagents.background.engine import task_threads
from ..auth.owned_journal import id_among_all
from ..results import Answer, moment, unknown
from ..runs.cancellation import Cancellation
from ..runs.queue import is_in_line, lined_up
from ..settings.settings import Settings
from ..threads.journal_servers import ReplicaServers
from ..threads.journals import Beside, journal_beside_servers
from ..threads.listing import cost_of, question_line, run_facts, run_text
from ..threads.rewinding import redaction_of
from .retries import RetryRequests
from .run_answers import (
    input_redactor,
    is_answered,
    open_questions,
    store_answers,
    tell,
    until_it_stops,
)

__all__ = ["RunAdmin"]

TAKEN_SECONDS = 10.0
"""Seconds a server may take to continue a run."""

_LOOK = 0.1

_RESUME = "deep-agent-mcp run --resume"

_Place: TypeAlias = Literal["works", "waits", "left"]
"""What servers do with a running run: one works on it, one will when it has a place, or none."""


class RunAdmin:
    """Shows, cancels and retries the runs of a journal.

    Servers of its state directory may be running. They carry out what is requested.

    Args:
        opened: The journal.
        rules: Returns the redaction rules for what is stored, once something is.
    """

    def __init__(self, opened: Beside, rules: Callable[[], Sequence[Rule]] = lambda: ()) -> None:
        self._rules = rules
        self._journal = opened.journal
        self._state = opened.state
        self._owner = opened.owner
        self._processes = opened.servers
        self._requests = RetryRequests(opened.state)

    @staticmethod
    @asynccontextmanager
    async def open(settings: Settings) -> AsyncGenerator[RunAdmin]:
        """Open the journal of the settings.

        Raises:
            StateDirError, HarnessError: As for `journal_beside_servers`.
        """
        async with journal_beside_servers(settings) as opened:
            yield RunAdmin(opened, partial(redaction_of, settings))

    # --- reading ---------------------------------------------------------------------------

    async def list(self, status: RunStatus | None, thread: str | None, limit: int) -> Answer:
        """Return runs, newest first."""
        if thread is not None:
            thread = await id_among_all(self._journal, thread)
        runs = await self._journal.find_runs(status=status, thread_id=thread, limit=limit + 1)
        data: list[JsonValue] = [_facts(run, await self._place(run)) for run in runs[:limit]]
        none = "There are no such runs." if status or thread else "There are no runs yet."
        text = "" if data else none
        return Answer(text, {"runs": data, "more": len(runs) > limit})

    async def show(self, run_id: str) -> Answer:
        """Return a run with its open questions.

        Raises:
            UnknownRun: There is no such run.
        """
        run = await self._find(run_id)
        place = await self._place(run)
        asked = await self._journal.interrupts(run.id)
        questions = [one for one in asked if not one.answered and one.is_question]
        used = Used.from_json(json.loads(run.used)) if run.used else None
        data = {**_facts(run, place), "answer": run.answer, "reason": run.reason}
        data["usage"] = None if used is None else used.to_json()
        data["open_questions"] = [one.id for one in questions]
        lines = [question_line(one) for one in questions]
        if await is_answered(self._journal, run):
            lines = ["All its questions are answered. It continues once a server takes it."]
        text = run_text({**data, "goal": run.goal}, _words(place), lines)
        return Answer(f"{text}\nWhat it did: deep-agent-mcp threads events {run.id}", data)

    async def _place(self, run: Run) -> _Place | None:
        """Return what servers do with a running run; None for other runs."""
        if run.status != "running":
            return None
        if is_in_line(run) and await self._has_servers():
            return "waits"
        return "left" if await self._is_left(run) else "works"

    async def _has_servers(self) -> bool:
        """Whether servers use the journal; with replicas, some are expected to."""
        if isinstance(self._processes, ReplicaServers):
            return True
        return await anyio.to_thread.run_sync(self._state.has_others, self._owner)

    async def _is_left(self, run: Run) -> bool:
        return run.owner is None or not await self._processes.is_alive(run.owner)

    async def _find(self, run_id: str) -> Run:
        run = await self._journal.run(run_id)
        if run is None:
            known = [one.id for one in await self._journal.find_runs(limit=1_000)]
            raise UnknownRun(unknown("run", run_id, known, "`runs list` lists them."))
        return run

    # --- steering --------------------------------------------------------------------------

    async def cancel(self, run_ids: Sequence[str], reason: str) -> Answer:
        """End runs, whichever server works on them; their committed steps stay.

        Background tasks of their threads end with them, except those of driven calls. A repeated
        cancel leaves tasks that began after the run had ended.

        Raises:
            UnknownRun: There is no such run; no run was ended.
            ThreadBusy: The server that works on one is slow to end it, but will. The runs before
                it were ended, with their tasks.
        """
        found = [await self._find(one) for one in run_ids]
        cancellation = Cancellation(
            self._journal, self._processes, {}, self._is_left, lambda run: None
        )
        ended: list[tuple[Run, Run]] = []
        tasks: list[tuple[Run, Run]] = []
        for run in found:
            now = await cancellation.end(run, reason)
            ended.append((run, now))
            if now.status == "cancelled" and run.kind == "delegate":
                until = now.updated_at if run.status in ENDED else None
                tasks += await self._end_tasks(cancellation, run.thread_id, reason, until)
        ended += tasks
        lines = [
            f"{now.id}: {now.status}" + (", as it was before" if now == before else "")
            for before, now in ended
        ]
        return Answer("\n".join(lines), {"runs": [run_facts(now) for _, now in ended]})

    async def _end_tasks(
        self, cancellation: Cancellation, thread_id: str, reason: str, begun_by: float | None
    ) -> list[tuple[Run, Run]]:
        """End the background tasks of a thread; return their runs before and after.

        Those that began after the time `begun_by` are left alone.

        Raises:
            HarnessError: One could not be ended; the others were.
        """
        ended: list[tuple[Run, Run]] = []
        failed: list[HarnessError] = []
        for task in await task_threads(self._journal, thread_id):
            for run in await self._journal.find_runs(thread_id=task):
                newer = begun_by is not None and run.created_at > begun_by
                if run.status in ENDED or newer:
                    continue
                try:
                    ended.append((run, await cancellation.end(run, reason)))
                except HarnessError as error:
                    failed.append(error)
        if failed:
            raise failed[0]
        return ended

    async def wait(self, run_id: str, seconds: float | None) -> Answer:
        """Wait until a run pauses or ends, whichever server works on it; return it.

        Raises:
            UnknownRun: There is no such run.
            HarnessError: No server works on it or continues it, so it would never end.
        """
        run = await self._find(run_id)
        here = f"Start one, or continue it here: {_RESUME} {run.id}"
        if await self._place(run) == "left":
            raise HarnessError(f"No server works on run {run.id}, so it would not end. {here}")
        if await is_answered(self._journal, run):
            taken = await self._taken(run, seconds)
            if taken is None:
                raise HarnessError(
                    f"Run {run.id} has all its answers, but no server has continued it. {here}"
                )
            run = taken
        await until_it_stops(self._journal, run, seconds)
        return await self.show(run_id)

    async def questions(self, run_id: str) -> Sequence[Interrupt]:
        """Return what a run waits for a person to answer.

        Raises:
            UnknownRun: There is no such run.
            HarnessError: It asks nothing.
        """
        return await open_questions(self._journal, await self._find(run_id))

    async def answer(self, run_id: str, answers: Mapping[str, JsonValue]) -> Answer:
        """Store answers to a run's questions; once all are answered, have a server continue it.

        A run may ask while other calls of its step still work. Its server takes the answers after
        them, so such a run stays with it.

        Raises:
            UnknownRun, UnknownInterrupt, InvalidAnswer: Nothing was stored.
            HarnessError: The run asks nothing any more, so nothing was stored; or a server says
                that it cannot continue.
        """
        run = await self._find(run_id)
        await open_questions(self._journal, run)  # others may have answered or ended it by now
        is_last = await store_answers(self._journal, run, answers, input_redactor(self._rules()))
        if not is_last:
            text = f"Stored. Run {run.id} asks more: runs show {run.id}"
            return Answer(text, {**run_facts(run), "taken": False})
        run = await self._find(run_id)  # it may have paused or ended meanwhile
        if run.status in ENDED:
            return _ended(run)
        place = await self._place(run)
        if place == "works":
            text = f"Stored. Run {run.id} still works on other calls, and continues after them."
            return Answer(text, {**run_facts(run), "taken": True})
        if place == "waits":
            return Answer(f"Stored. {_in_line(run)}", {**run_facts(run), "taken": True})
        return await self._gone_on(run)

    async def tell(self, run_id: str, message: str) -> Answer | None:
        """Send a message to a run that works or waits in line; None if it does neither, or asks.

        Raises:
            UnknownRun: There is no such run.
            HarnessError: The message is empty; nothing was stored.
        """
        run = await self._find(run_id)
        sent = await tell(self._journal, run, message, input_redactor(self._rules()))
        if sent is None:
            return None
        text = f"Message {sent.id} is queued: run {run.id} takes it before its next model call."
        if await self._place(run) == "left":
            text += (
                " No server works on it now. One that runs continues it when it has a place. To "
                f"continue it here: {_RESUME} {run.id}"
            )
        return Answer(text, {**run_facts(run), "message_id": sent.id})

    async def retry(self, run_id: str) -> Answer:
        """Have a server continue a failed, paused or abandoned run from its last step.

        Raises:
            UnknownRun: There is no such run.
            HarnessError: It cannot continue; nothing was changed.
        """
        run = await self._find(run_id)
        problem = await self._why_not(run)
        if problem is not None:
            raise HarnessError(f"Run {run.id} {problem} Nothing was changed.")
        return await self._gone_on(run)

    async def _gone_on(self, run: Run) -> Answer:
        """Have a server continue a run.

        Raises:
            HarnessError: A server says that it cannot.
        """
        if isinstance(self._processes, ReplicaServers):
            with suppress(Superseded):  # a server has just continued it
                # Any server continues an abandoned run.
                await self._journal.commit(lined_up(run))
                await self._processes.cancel_requests.tell("run", run.id, "left")
                run = await self._find(run.id)
        else:
            await anyio.to_thread.run_sync(self._requests.store, run)
        now = await self._taken(run)
        if now is None:
            text = (
                f"Stored. No server has continued run {run.id} yet; one that uses this journal "
                f"will, or the next one that starts. To continue it here: {_RESUME} {run.id}"
            )
            return Answer(text, {**run_facts(run), "taken": False})
        if now.status == "cancelled":
            return _ended(now)
        text = f"Run {run.id} continues, as attempt {now.attempt}: {now.status}."
        if is_in_line(now):
            text = _in_line(now)
        return Answer(text, {**run_facts(now), "taken": True})

    async def _why_not(self, run: Run) -> str | None:
        if run.status in ("done", "cancelled"):
            return f"is {run.status}, so there is nothing to continue. Start a new one."
        if run.status == "queued":
            return "is queued and starts by itself. `runs cancel` removes it from the queue."
        if run.status == "needs_approval" and not await is_answered(self._journal, run):
            return (
                "waits for an answer. Give it with `runs approve` or `runs reply`, with the tool "
                "reply of a client, or on the page at /ui; `runs cancel` ends the run."
            )
        place = await self._place(run)
        if place == "works":
            return "is running in a server. `runs cancel` ends it."
        if place == "waits":
            return "waits for a free place and continues by itself. `runs cancel` ends it."
        newest = await self._journal.history(run.thread_id, limit=1)
        if newest and newest[0].run_id != run.id and newest[0].id != run.base:
            return (
                f"cannot continue: thread {run.thread_id} has moved on without run {run.id}. Start "
                f'another: deep-agent-mcp run --thread {run.thread_id} "…".'
            )
        return None

    async def _taken(self, run: Run, seconds: float | None = None) -> Run | None:
        """Return the run once a server continues it; None if none does, or not in `seconds`.

        Raises:
            HarnessError: A server says that it cannot.
        """
        patience = TAKEN_SECONDS if seconds is None else min(TAKEN_SECONDS, seconds)
        until = time.monotonic() + patience
        others = await self._has_servers()
        while others and time.monotonic() < until:
            now = await self._journal.run(run.id)
            if now is not None and now.attempt > run.attempt:
                return now
            why = await anyio.to_thread.run_sync(self._requests.refusal, run)
            if why is not None:
                raise HarnessError(why)
            await anyio.sleep(_LOOK)
        return None


def _ended(run: Run) -> Answer:
    """Return that a run has ended while it was answered."""
    text = f"Run {run.id} has ended meanwhile: {run.status}."
    return Answer(text, {**run_facts(run), "taken": run.status == "done"})


def _in_line(run: Run) -> str:
    """Return that a run continues when its turn comes."""
    return f"Run {run.id} waits for a free place, and continues then."


def _facts(run: Run, place: _Place | None) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {
        **run_facts(run),
        "thread_id": run.thread_id,
        "agent": run.agent,
        "attempt": run.attempt,
        "created": moment(run.created_at),
        "updated": moment(run.updated_at),
    }
    cost = cost_of(run)
    if cost is not None:
        facts["cost"] = round(cost, 6)
    return {**facts, "at_work": place == "works"} if place in ("works", "left") else facts


def _words(place: _Place | None) -> str:
    words: dict[_Place | None, str] = {
        None: "",
        "works": "; a server works on it",
        "waits": "; a server continues it in its turn",
        "left": "; no server works on it",
    }
    return words[place]
