"""Thread access: reads a thread's state and history, and updates it outside runs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
from pydantic import JsonValue

from .._internal.records import record
from ..checkpoint.base import (
    OPEN,
    Batch,
    Checkpoint,
    Checkpointer,
    Interrupt,
    Next,
    Run,
    RunEvent,
    taken_over,
)
from ..errors import (
    RunEnded,
    Superseded,
    UnknownCheckpoint,
    UnknownRun,
    UnknownThread,
)
from ..limits.limits import Limits, Meter
from ..models.base import ChatRequest
from ..state.channels import State
from ..tools.tool import Tool
from .caller_input import checked_answers, screened_answers
from .definition import AgentDefinition
from .engine import AgentLoop, Node
from .run.choices import RunChoices
from .run.commit_buffer import CommitBuffer
from .run.context import RunContext
from .run_executor import HIDDEN
from .thread_input import add_between_runs
from .thread_locks import ThreadLocks, is_left

__all__ = ["StateSnapshot", "ThreadAccess"]

_PAGE, _PAGES = 50, 20
"""The most checkpoints to search for those of a run."""


@record
class StateSnapshot:
    """Snapshot of the state at a checkpoint.

    Attributes:
        values: The keys that callers may see.
        checkpoint: The checkpoint.
        next: The phase that follows.
        interrupts: Questions of the main agent in the unfinished step, answered or not; those of
            subagents are in `RunResult.interrupts`.
        finished_calls: Calls of the unfinished step that already have a result.
    """

    values: State
    checkpoint: Checkpoint
    next: Next
    interrupts: Sequence[Interrupt]
    finished_calls: Sequence[str]


class ThreadAccess:
    """Reads and writes threads of one agent; `AgentRuns` adds the runs.

    Attributes:
        definition: The agent.
        checkpointer: The journal.
    """

    def __init__(self, definition: AgentDefinition, checkpointer: Checkpointer) -> None:
        self.definition = definition
        self.checkpointer = checkpointer
        self._turns = ThreadLocks()

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.definition.name

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its tools by name, in the order the model sees them."""
        return self.definition.tools

    def recalls(self, thread_id: str) -> bool:
        """Whether the cache has the thread, and it is idle as far as this agent knows."""
        cached = self.definition.states.get(thread_id, "")
        return cached is not None and cached[0].next == "end"

    async def get_state(self, thread_id: str, checkpoint_id: str | None = None) -> StateSnapshot:
        """Return the state at a checkpoint, by default the newest.

        Raises:
            UnknownThread: There is no such thread.
            UnknownCheckpoint: It has no such checkpoint.
        """
        loop = await self._open(thread_id, checkpoint_id)
        thread = loop.thread
        assert thread.head is not None
        return StateSnapshot(
            values=self.definition.schema.without(thread.state, HIDDEN),
            checkpoint=thread.head,
            next=thread.next,
            interrupts=tuple(thread.interrupts.values()),
            finished_calls=tuple(task.task_id for task in thread.pending),
        )

    async def get_request(
        self, thread_id: str, checkpoint_id: str, *, ns: str = "", path: Sequence[str] = ()
    ) -> ChatRequest:
        """Return the request to a model in a step, rebuilt by the current agents.

        Args:
            thread_id: The thread.
            checkpoint_id: The step.
            ns: The namespace of the subagent whose step it is; by default the main agent's.
            path: The agents and calls that lead to that subagent, as in `Interrupt.path`.

        Raises:
            UnknownThread, UnknownCheckpoint: As for `get_state`.
            RequestUnknown: The step has no model call, or its request cannot be rebuilt.
        """
        from .request_view import request_at  # rarely used

        found = await request_at(self.definition, self._reader(thread_id), checkpoint_id, ns, path)
        if found is None:
            raise _unknown_checkpoint(thread_id, checkpoint_id)
        return found

    async def get_state_history(
        self, thread_id: str, *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return the checkpoints of a thread, newest first, without their values.

        Raises:
            UnknownCheckpoint: The thread has no checkpoint `before`.
        """
        found = await self.checkpointer.history(thread_id, before=before, limit=limit)
        if not found and before is not None:
            load = self.checkpointer.load
            if await load(thread_id, checkpoint_id=before, cached=before) is None:
                raise _unknown_checkpoint(thread_id, before)
        return found

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return the events of a run that was started with `log_events`, oldest first.

        Args:
            run_id: The run.
            after: The number of the newest event that is already known.
            limit: The most events. If a number is missing, an event is no longer kept.
        """
        return await self.checkpointer.events(run_id, after=after, limit=limit)

    async def update_state(
        self,
        thread_id: str,
        values: Mapping[str, Any],
        *,
        checkpoint_id: str | None = None,
        as_node: Node | None = None,
    ) -> Checkpoint:
        """Write to the state outside runs, on top of a checkpoint; this starts a new branch.

        `ainvoke(None)` continues from there.

        Args:
            thread_id: The thread.
            values: Writes by key; they pass the reducers. Keys that input may not set may be set
                here.
            checkpoint_id: The checkpoint; by default the newest.
            as_node: The node whose edges decide the next phase: `input`, `model`, `tools` or
                `end`. By default, the checkpoint's next phase stays.

        Raises:
            UnknownThread, UnknownCheckpoint: As for `get_state`.
            InvalidUpdate: The values do not fit; nothing was stored.
            ThreadBusy: A run works on the thread.
        """
        return await self._branch(thread_id, checkpoint_id, "update", values, as_node)

    async def add_input(
        self, thread_id: str, values: Mapping[str, Any], *, gives_up: bool = False
    ) -> Checkpoint:
        """Commit input without a run, on top of the newest checkpoint; create the thread if needed.

        Args:
            thread_id: The thread.
            values: Writes by key; they pass the reducers.
            gives_up: Give up a run that was stopped before its end, as input of `ainvoke` does.

        Raises:
            InvalidUpdate: The values do not fit; nothing was stored.
            StaleThread: Another run changed the thread; nothing was stored. Try again.
            ThreadBusy: A run works on the thread, or waits to be resumed and is not given up.
        """
        with await self._turns.moment(thread_id):
            thread = (await self._open(thread_id, None, create=True)).thread
            await add_between_runs(thread, values, gives_up=gives_up)
            assert thread.head is not None
            return thread.head

    async def check_input(self, thread_id: str, values: Mapping[str, Any]) -> None:
        """Check that `add_input` would accept the values, without storing anything.

        Raises:
            InvalidUpdate: The values do not fit.
            PIIDetectionError: A rule blocks a text in them.
        """
        loop = await self._open(thread_id, None, create=True)
        loop.thread.check(values, "input")

    async def bulk_update_state(
        self, thread_id: str, updates: Sequence[tuple[Mapping[str, Any], Node | None]]
    ) -> Checkpoint:
        """Write several steps, one after the other, each a checkpoint.

        Args:
            thread_id: The thread.
            updates: Values and `as_node` of each step; at least one.

        Raises:
            ValueError: There are no updates.
            InvalidUpdate: As for `update_state`; the steps before stay.
        """
        if not updates:
            raise ValueError("bulk_update_state needs at least one update; nothing was written")
        for values, as_node in updates[:-1]:
            await self.update_state(thread_id, values, as_node=as_node)
        values, as_node = updates[-1]
        return await self.update_state(thread_id, values, as_node=as_node)

    async def fork(self, thread_id: str, checkpoint_id: str) -> Checkpoint:
        """Make an old checkpoint the newest state of its thread; history is kept.

        Raises:
            UnknownThread, UnknownCheckpoint: As for `get_state`.
        """
        return await self._branch(thread_id, checkpoint_id, "fork", {})

    async def _branch(
        self,
        thread_id: str,
        checkpoint_id: str | None,
        author: str,
        values: Mapping[str, Any],
        as_node: Node | None = None,
    ) -> Checkpoint:
        with await self._turns.moment(thread_id):
            loop = await self._open(thread_id, checkpoint_id)
            thread = loop.thread
            assert thread.head is not None
            thread.write(values, author)
            await thread.commit(
                author,
                thread.next if as_node is None else loop.follows(as_node),
                source="update" if author == "update" else "fork",
                summary=f"{author} of {thread.head.id}",
                salt=secrets.token_hex(8),
            )
            return thread.head

    async def choices_of(self, run_id: str) -> RunChoices | None:
        """Return the choices for a run; None without any, and for unknown runs.

        Only the newest few hundred checkpoints of the run's thread are searched.
        """
        run = await self.checkpointer.run(run_id)
        before: str | None = None
        for _ in range(_PAGES if run is not None else 0):
            assert run is not None
            page = await self.checkpointer.history(run.thread_id, before=before, limit=_PAGE)
            made = next((one for one in page if one.run_id == run_id), None)
            if made is not None:
                loop = await self._open(run.thread_id, made.id)
                return RunChoices.from_json(loop.thread.state.get("run_choices"))
            if len(page) < _PAGE:
                break
            before = page[-1].id
        return None

    async def _chosen(self, choices: RunChoices | None) -> AgentDefinition:
        """Return the agent with a run's choices; if it has to be built, that happens in a thread.

        Raises:
            HarnessError: As for `AgentDefinition.chosen`; nothing was stored.
        """
        if choices is None:
            return self.definition
        return await anyio.to_thread.run_sync(self.definition.chosen, choices)

    async def answer(self, run_id: str, answers: Mapping[str, JsonValue]) -> None:
        """Store answers for a run that still works on other calls; the run reads them itself.

        Raises:
            UnknownInterrupt, InvalidAnswer: As for `aresume`.
        """
        interrupts = await self.checkpointer.interrupts(run_id)
        fresh = checked_answers(self.definition, interrupts, answers)
        if fresh:
            thread_id = interrupts[0].thread_id
            if self.definition.states.rules:
                loop = await self._open(thread_id, None)
                await loop.run.journal.commit(
                    Batch(thread_id, answers=screened_answers(loop, fresh))
                )
            else:
                await self.checkpointer.commit(Batch(thread_id, answers=fresh))

    async def _make_way(
        self, run_id: str, for_run: str, *, ends_others: bool, insists: bool
    ) -> bool:
        """End the open run of a thread for another one; return whether the thread is free.

        A run that waits for an answer is ended, since a new message takes its place. So is an
        abandoned run, and, if the caller insists, a run that another process works on.

        Args:
            run_id: The open run.
            for_run: The run that needs the thread.
            ends_others: Whether waiting or abandoned runs are ended. A caller with its own owner id
                knows better which runs these are.
            insists: Whether any run is ended.
        """
        other = await self.checkpointer.run(run_id)
        if other is None or other.status not in OPEN:
            return True
        over = ends_others and (other.status == "needs_approval" or is_left(other))
        if not (over or insists):
            return False
        reason = f"the thread moved on with run {for_run}"
        try:
            await self.checkpointer.commit(taken_over(other, status="cancelled", reason=reason))
        except Superseded:
            return False
        return True

    async def _unfinished(self, run_id: str) -> Run:
        run = await self.checkpointer.run(run_id)
        if run is None:
            raise UnknownRun(f"there is no run {run_id!r}")
        if run.status in ("done", "cancelled"):
            why = f" ({run.reason})" if run.reason else ""
            raise RunEnded(f"run {run_id} is {run.status}{why}; start a new one on {run.thread_id}")
        return run

    async def _choices_at_head(self, thread_id: str) -> RunChoices | None:
        """Return the choices of the run with the newest input of a thread."""
        try:
            loop = await self._open(thread_id, None)
        except UnknownThread:
            return None
        return RunChoices.from_json(loop.thread.state.get("run_choices"))

    async def _open(
        self, thread_id: str, checkpoint_id: str | None, *, create: bool = False
    ) -> AgentLoop:
        loop = AgentLoop(self.definition, self._reader(thread_id))
        if await loop.thread.open(checkpoint_id):
            return loop
        if checkpoint_id is not None and await self.checkpointer.load(thread_id) is not None:
            raise _unknown_checkpoint(thread_id, checkpoint_id)
        if create:
            return loop
        raise UnknownThread(f"there is no thread {thread_id!r}")

    def _reader(self, thread_id: str) -> RunContext:
        """Return a run context for a loop that only reads, or writes outside runs."""
        run = Run("", thread_id, "delegate", self.name, status="done")
        journal = CommitBuffer(self.checkpointer, thread_id)
        return RunContext(run, self.checkpointer, journal, Meter(Limits()))

    async def open_questions(self, thread_id: str) -> Sequence[Interrupt]:
        """Return the open questions of a thread's newest run and its subagents."""
        runs = await self.checkpointer.find_runs(thread_id=thread_id, limit=1)
        if not runs or runs[0].status in ("done", "cancelled"):
            return ()
        asked = await self.checkpointer.interrupts(runs[0].id)
        return [one for one in asked if not one.answered and one.is_question]


def _unknown_checkpoint(thread_id: str, checkpoint_id: str) -> UnknownCheckpoint:
    return UnknownCheckpoint(
        f"thread {thread_id!r} has no checkpoint {checkpoint_id!r}; nothing was done. Its history "
        "lists those it has."
    )
