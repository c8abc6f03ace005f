"""Waiting for a run during a tool call: the run's questions and model calls go to the client.

If the client's user cancels the call, the run that the call started is ended.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import anyio
from mcp.types import (
    CallToolRequestParams,
    InputRequiredResult,
    InputResponse,
    ProgressNotification,
    ProgressNotificationParams,
)

from ...harness._internal.concurrency import raising_one
from ...harness._internal.records import record
from ...harness.errors import HarnessError
from ...harness.loop.run.events import Emit
from ..approvals.questions import (
    Decisions,
    ask_live,
    decisions,
    input_required,
    too_late,
    way_to_ask,
)
from ..mcp.requests import Context, Services
from ..runs.accounts import Snapshot
from ..runs.progress import reporting
from ..sampling.client_model import (
    LiveSampler,
    SamplingWay,
    live_sampling,
    related_task,
    way_to_sample,
)
from ..sampling.queue import is_parked

__all__ = ["OwnRun", "own_run", "resumed_run", "resumes_own", "wait_for_run"]


LIVE_ANSWER_SECONDS = 600.0
"""Maximum time to wait for a person's answer while the client's call is open."""

MOST_ROUNDS = 8
"""Maximum `input_required` rounds of one call; clients give up after 8 to 10."""

LAST_LOOK_SECONDS = 1.0
"""Additional time for a run to end after an answer of the client's model."""


@record
class _Repetition:
    """State of a repeated call; the SDK has verified its integrity.

    Attributes:
        run_id: The run.
        rounds: Number of `input_required` results so far.
        asked: Keys of the questions in the last of these results.
        own: Whether the call started the run.
    """

    run_id: str
    rounds: int = 0
    asked: tuple[str, ...] = ()
    own: bool = False

    @staticmethod
    def of(params: CallToolRequestParams) -> _Repetition | None:
        if params.request_state is None:
            return None
        state = cast("dict[str, Any]", json.loads(params.request_state))
        rounds, asked = state.get("rounds", 1), tuple(state.get("asked", ()))
        return _Repetition(state["run_id"], rounds, asked, bool(state.get("own")))

    def next(self, asked: Iterable[str]) -> str:
        """Return the state for the next round, with the keys of its questions."""
        state = {"run_id": self.run_id, "rounds": self.rounds + 1, "asked": [*asked]}
        return json.dumps({**state, "own": True} if self.own else state)


def resumed_run(params: CallToolRequestParams) -> str | None:
    """Return the run that a repeated call continues, or None for a first call."""
    if params.request_state is None:
        return None
    repetition = _Repetition.of(params)
    return None if repetition is None else repetition.run_id


def resumes_own(params: CallToolRequestParams) -> bool:
    """Return whether a repeated call itself started the run that it continues."""
    repetition = _Repetition.of(params)
    return repetition is not None and repetition.own


async def wait_for_run(
    ctx: Context,
    services: Services,
    params: CallToolRequestParams,
    run_id: str,
    seconds: float,
    *,
    own: bool = False,
) -> Snapshot | InputRequiredResult:
    """Wait until a run pauses or ends, or the time is over; ask the client its questions.

    `own` says that the call started the run; for a repeated call, its state says so.

    Raises:
        HarnessError: The run cannot be waited for.
    """
    runs = services.runs
    changes = not services.settings.read_only  # a read-only server must not continue runs
    sampling = way_to_sample(ctx, run_id) if changes and seconds > 0 else "none"
    thread_id = ""
    if sampling != "none":
        await runs.unpark(run_id, seconds)
        thread_id = (await runs.snapshot(run_id)).run.thread_id
    async with (
        _progress(ctx, services, run_id) as emit,
        live_sampling(ctx, runs.sampling, services.requests, thread_id, sampling) as sampler,
    ):
        waiting = _Waiting(ctx, services, run_id, seconds, sampling, sampler, emit)
        round_ = _Repetition.of(params) or _Repetition(run_id, own=own)
        return await waiting.settled(params, round_)


@asynccontextmanager
async def _progress(ctx: Context, services: Services, run_id: str) -> AsyncGenerator[Emit | None]:
    """Report progress during the block.

    HTTP clients without a progress token get none: thousands of them may wait at the same time.
    (Clients in this process get progress without a token.)
    """
    meta = (ctx.params or {}).get("_meta")
    is_wanted = isinstance(meta, Mapping) and "progressToken" in meta
    if ctx.request is not None and not is_wanted:
        yield None
        return
    todos = partial(services.runs.todos, run_id) if is_wanted else None
    related = related_task(ctx)

    async def report_of_task(progress: float, total: float | None, message: str | None) -> None:
        params = ProgressNotificationParams(
            progress_token=cast("Mapping[str, Any]", meta)["progressToken"],
            progress=progress,
            total=total,
            message=message,
            _meta=related,
        )
        await ctx.session.send_notification(ProgressNotification(params=params), ctx.request_id)

    of_task = is_wanted and related is not None  # the SDK's own notice has no `_meta`
    report = report_of_task if of_task else ctx.session.report_progress
    async with reporting(report, todos) as emit:
        yield emit


class _Waiting:
    """A tool call that waits for a run."""

    def __init__(
        self,
        ctx: Context,
        services: Services,
        run_id: str,
        seconds: float,
        sampling: SamplingWay,
        sampler: LiveSampler | None,
        emit: Emit | None,
    ) -> None:
        self._ctx = ctx
        self._services = services
        self._runs = services.runs
        self._run_id = run_id
        self._seconds = seconds
        self._sampling = sampling
        self._sampler = sampler
        self._emit = emit
        reads_only = services.settings.read_only
        self._asking = "none" if reads_only else way_to_ask(ctx)
        self._notes: list[str] = []

    async def settled(
        self, params: CallToolRequestParams, round_: _Repetition
    ) -> Snapshot | InputRequiredResult:
        """Return a snapshot of the run, or the questions for the client before its next call."""
        if round_.rounds:
            await self._take_responses(params.input_responses or {}, round_.asked)
        until = anyio.current_time() + self._seconds
        while True:
            snapshot = await self._next_stop()
            required = await self._required(snapshot, round_)
            if required is not None:
                return required
            is_parked_now = self._sampling != "none" and is_parked(snapshot.run)
            goes_on = is_parked_now or self._was_answered_elsewhere(snapshot, round_)
            if goes_on and anyio.current_time() < until:
                self._seconds = until - anyio.current_time()
                if is_parked_now:  # by another server, or before this client was here
                    await self._runs.unpark(self._run_id, self._seconds)
                continue
            if not snapshot.questions or self._asking != "live":
                return replace(snapshot, notes=self._notes)
            if not await self._ask_now(snapshot):
                self._asking = "none"

    def _was_answered_elsewhere(self, snapshot: Snapshot, round_: _Repetition) -> bool:
        """Return whether another client has just answered what the run was waiting for."""
        asks = self._sampling == "retry" and round_.rounds < MOST_ROUNDS
        return asks and snapshot.run.status == "running" and not snapshot.stopping

    async def _next_stop(self) -> Snapshot:
        """Wait until the run pauses or ends, or needs an answer from a client that calls again."""
        to_lend = self._sampling == "retry"
        snapshot = await self._runs.wait(self._run_id, self._seconds, self._emit, to_lend=to_lend)
        if self._sampler is None or snapshot.run.status != "running":
            return snapshot
        if not await self._sampler.finish():
            return snapshot
        # The time is over, but the client's model was working for this run.
        return await self._runs.wait(self._run_id, LAST_LOOK_SECONDS, self._emit, to_lend=True)

    async def _required(
        self, snapshot: Snapshot, round_: _Repetition
    ) -> InputRequiredResult | None:
        """Return questions for a client of 2026-07-28; None without any or at the last round."""
        if round_.rounds >= MOST_ROUNDS:
            return None
        questions, calls = snapshot.questions, snapshot.calls
        if calls and self._sampling == "retry":
            calls = await self._runs.sampling.gathered(snapshot.run.thread_id)
            self._runs.sampling.lease(snapshot.run.thread_id)
            questions = await self._runs.questions(self._run_id)  # also while it is running
        else:
            calls = ()
        if self._asking != "retry":
            questions = ()
        asked = [*(one.id for one in questions), *(one.key for one in calls)]
        return input_required(questions, round_.next(asked), calls) if asked else None

    async def _take_responses(
        self, responses: Mapping[str, InputResponse], asked: Collection[str]
    ) -> None:
        """Store the answers of a repeated call; unanswered questions are not asked again."""
        snapshot = await self._runs.snapshot(self._run_id)
        if self._sampling == "retry":
            left = {one.key for one in snapshot.calls if one.key in asked} - responses.keys()
            given = {key: one for key, one in responses.items() if key in asked}
            self._runs.sampling.take(snapshot.run.thread_id, given)
            if left:
                self._sampling = "none"
        if self._asking == "none":
            return
        takes = snapshot.run.status in ("running", "needs_approval")
        known = [
            one
            for one in await self._runs.asked(self._run_id)
            if one.id in asked and (takes or one.answered)
        ]
        if not await self._hand_over(decisions(known, responses)):
            self._asking = "none"

    async def _ask_now(self, snapshot: Snapshot) -> bool:
        """Ask over the open connection; return whether the run continues.

        The form is withdrawn if somebody else answers the question or ends the run.
        """
        responses: dict[str, InputResponse] = {}
        moved_on = False
        with self._services.requests.asking(LIVE_ANSWER_SECONDS):
            async with raising_one(), anyio.create_task_group() as group:

                async def ask() -> None:
                    await ask_live(self._ctx, snapshot.questions, responses)
                    group.cancel_scope.cancel()

                group.start_soon(ask)
                await self._runs.moved_on(snapshot.run)
                moved_on = True
                group.cancel_scope.cancel()
        decided = await self._hand_over(decisions(snapshot.questions, responses))
        return decided or moved_on

    async def _hand_over(self, found: Decisions) -> bool:
        """Pass a person's decisions to the run; return whether all questions are answered.

        Problems with refused decisions are added to the caller's notes.
        """
        self._notes += found.problems
        if found.answers:
            try:
                stored = await self._runs.reply(self._run_id, found.answers, how="form")
            except HarnessError as error:
                self._notes.append(str(error))
                return False
            self._notes += too_late(stored)
        return not found.open


END_SECONDS = 10.0
"""Maximum time that a closing connection waits for the end of a run."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OwnRun:
    """The run that a call started.

    Attributes:
        run_id: The run; None before it starts, or if another call started it.
    """

    run_id: str | None = None

    def began(self, run_id: str) -> None:
        """Record that the call started a run."""
        self.run_id = run_id


@asynccontextmanager
async def own_run(ctx: Context, services: Services) -> AsyncGenerator[OwnRun]:
    """Yield an `OwnRun` for a call; end its run if the user cancels the call.

    If the call times out or its connection is lost, the run continues.
    """
    own = OwnRun()
    with services.cancelled.serving(ctx) as request:
        try:
            yield own
        except anyio.get_cancelled_exc_class():
            if own.run_id is not None:
                # Not in the background, so that a closing server waits for it.
                with anyio.move_on_after(END_SECONDS, shield=True):
                    if await request.is_cancelled_by_user():
                        await _end(services, own.run_id)
            raise


async def _end(services: Services, run_id: str) -> None:
    try:
        await services.runs.cancel(run_id, "the call that started it was cancelled")
    except HarnessError as error:
        logger.warning("run %s was not cancelled with the call that started it: %s", run_id, error)
