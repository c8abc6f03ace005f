"""The state of one namespace of a thread: loaded from the journal, changed by writes, committed.

A commit stores the writes of the current step as a checkpoint, in one transaction. Writes that
finished tasks of the step stored earlier belong to it, because a step's id follows from its parent.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import anyio

from ..checkpoint.base import (
    Batch,
    Checkpoint,
    Interrupt,
    Next,
    Run,
    Source,
    StoredWrite,
    TaskWrites,
    step_id,
    turn_step_id,
)
from ..errors import InvalidUpdate, MiddlewareError
from ..limits.carried_limits import noted
from ..messages.message import Message
from ..state.channels import ChannelWrite, Mark, Overwrite, State
from ..state.schema import StateSchema
from .checkpoints import (
    EPHEMERAL,
    FIRST_KEPT,
    LAST_INDEX,
    PendingWrites,
    announce,
    decoded,
    fingerprint,
    kept_mark,
    weighed,
)
from .model_answers import newest_answer
from .run.context import RunContext, StateCache

if TYPE_CHECKING:
    from ..redaction.rules import Place
    from .run.redaction import RunRedaction

__all__ = ["ThreadState"]

_UNTRACKED = frozenset({Mark.UNTRACKED})


class ThreadState:
    """State of a thread, as its loop knows it.

    Attributes:
        writes: Uncommitted writes, without those of finished calls.
        head: The newest checkpoint; None on a new thread.
        pending: Finished calls of the unfinished step, left by an earlier attempt.
        kept: Writes that hooks kept in that step; see `take_kept`.
        claims: Calls of the unfinished step that continue a subagent, by its namespace.
        cut: Reads the writes of subagents that were stopped from outside.
        begun: Marks of calls that must run at most once and have begun in the unfinished step.
        interrupts: Questions of the unfinished step, by id.
        screen: The redaction of everything that becomes part of the state; None without rules.
    """

    def __init__(
        self,
        schema: StateSchema,
        cache: StateCache,
        run: RunContext,
        ns: str,
        path: tuple[str, ...],
    ) -> None:
        self.schema = schema
        self.run = run
        self.ns = ns
        self.head: Checkpoint | None = None
        self.pending: list[TaskWrites] = []
        self.kept: Sequence[TaskWrites] = ()
        self.begun: set[str] = set()
        self.claims: dict[str, str] = {}
        self.cut: list[Callable[[], Awaitable[Sequence[ChannelWrite]]]] = []
        self.interrupts: dict[str, Interrupt] = {}
        self.screen = run.add_screen(path, cache.rules) if cache.rules or run.screens else None
        self._cache = cache
        self._path = path
        self.writes: list[ChannelWrite] = []
        self._adopted: list[ChannelWrite] = []
        self._weight = 0
        self._added = 0
        self._next_kept = FIRST_KEPT

    @cached_property
    def state(self) -> State:
        """The state after the last write, uncommitted ones included."""
        return self.schema.initial()

    @property
    def changes_only_the_transcript(self) -> bool:
        """Whether all uncommitted writes are messages, or invisible to callers."""
        hidden, channels = {Mark.PRIVATE, Mark.OMIT_FROM_OUTPUT}, self.schema.channels
        return all(
            one.channel == "messages" or channels[one.channel].marks & hidden
            for one in (*self._adopted, *self.writes)
        )

    def step_id(self, salt: str = "") -> str:
        """Return the id of the current step; salt starts a branch."""
        head, run = self.head, self.run
        if salt or (head is not None and head.next != "end"):
            return step_id(head.id if head else None, salt)
        return turn_step_id(head.id if head else None, run.thread_id, self.ns, run.run.id)

    @property
    def next(self) -> Next:
        """The phase after the newest checkpoint."""
        return self.head.next if self.head else "end"

    def recall(self) -> bool:
        """Take the head from the cache; return whether it was cached and its step is finished.

        If the thread has changed since, the next commit raises `StaleThread`.
        """
        cached = self._cache.get(self.run.thread_id, self.ns)
        if cached is None or cached[0].next != "end":
            return False
        self.head, self._weight = cached[0], cached[0].weight
        self.state = self.schema.without(cached[1], _UNTRACKED)
        if self.screen is not None:
            self.screen.recall(self.state, ())
        return True

    async def open(self, checkpoint_id: str | None = None) -> bool:
        """Load the head, or another checkpoint; return whether there is one."""
        thread_id, schema = self.run.thread_id, self.schema
        self.writes, self._adopted = [], []  # writes of a paused phase, which runs again
        cached = self._cache.get(thread_id, self.ns)
        await self.run.journal.settle()
        found = await self.run.checkpointer.load(
            thread_id,
            self.ns,
            checkpoint_id,
            cached=cached[0].id if cached else None,
            schema=fingerprint(schema),
        )
        if found is None:
            return False
        known = cached is not None and found.base == cached[0].id
        start = cached[1] if cached is not None and known else schema.initial()
        start = schema.without(start, _UNTRACKED)
        if self.screen is not None:
            self.screen.recall(start, found.writes)
        self.state = schema.fold(start, self.decode(found.writes))
        self.head = found.checkpoint
        read = sum(len(one.value) for one in found.writes)
        self._weight = max(self.head.weight, 0 if known else read)
        self._added = sum(len(one.value) for task in found.pending for one in task.writes)
        left = PendingWrites.of(found.pending)
        self.pending, self.kept, self.begun = left.finished, left.kept, left.begun
        self.claims, self._next_kept = left.claims, left.next_kept
        self.interrupts = {one.id: one for one in found.interrupts}
        if checkpoint_id is None:
            self._cache.put(self.head, self.state)
        return True

    def decode(self, writes: Sequence[StoredWrite]) -> list[ChannelWrite]:
        """Return stored writes as values, without keys that the schema no longer has."""
        values = decoded(self.schema, writes)
        if self.screen is None:
            return values
        # Some may have been stored before there was redaction.
        return self.screen.writes(self.schema, values, "tools", lenient=True)

    def encode(self, writes: Sequence[ChannelWrite]) -> tuple[StoredWrite, ...]:
        """Return writes in their stored form, without keys that are not stored."""
        channels = self.schema.channels
        encoded = [
            StoredWrite(name, channels[name].encode(value), isinstance(value, Overwrite))
            for name, value in writes
            if channels[name].stored
        ]
        self._added += sum([len(one.value) for one in encoded])
        return tuple(encoded)

    def write(
        self,
        update: Mapping[str, Any],
        author: str,
        place: Place | None = None,
        *,
        is_clean: bool = False,
    ) -> None:
        """Add writes to the current step, redacted unless they are marked as clean.

        Raises:
            InvalidUpdate: A key is not declared, a value does not fit, or a reducer refused it.
            PIIDetectionError: A rule blocks a text in it.
        """
        writes = self.schema.writes(update, author)
        if self.screen is not None and not is_clean:
            writes = self.screen.writes(self.schema, writes, place)
        self.state = self.joined(writes, author)
        self.writes.extend(writes)

    def joined(self, writes: Sequence[ChannelWrite], author: str) -> State:
        """Return the state after some writes, without applying them.

        Raises:
            InvalidUpdate: A reducer refused one, such as the removal of an unknown message.
        """
        try:
            return self.schema.fold(self.state, writes)
        except Exception as error:
            keys = ", ".join(sorted({repr(one.channel) for one in writes}))
            raise InvalidUpdate(
                f"{author} wrote {keys}, which cannot join the state: "
                f"{type(error).__name__}: {error}"
            ) from error

    def write_messages(self, messages: Sequence[Message]) -> None:
        """Add messages made by the loop itself, which need no check."""
        write = ChannelWrite("messages", messages)
        if self.screen is not None:
            (write,) = self.screen.writes(self.schema, [write])
        self.state = self.schema.fold(self.state, [write])
        self.writes.append(write)

    def check(
        self, update: Mapping[str, Any], author: str, place: Place | None = None
    ) -> list[ChannelWrite]:
        """Return an update as redacted writes, without applying them.

        Raises:
            InvalidUpdate, PIIDetectionError: As for `write`.
        """
        writes = self.schema.writes(update, author)
        return writes if self.screen is None else self.screen.writes(self.schema, writes, place)

    def answer(self) -> str:
        """Return the newest answer to the user that has text; empty if there is none.

        A structured answer is given as JSON.
        """
        value = self.state.get("structured_response")
        if value is not None:
            data = self.schema["structured_response"].to_json(value)
            return json.dumps(data, ensure_ascii=False)
        return newest_answer(self.state["messages"])

    def adopt(self, writes: Sequence[ChannelWrite]) -> None:
        """Apply writes that the step's tasks store themselves."""
        self.state = self.schema.fold(self.state, writes)
        self._adopted.extend(writes)

    @cached_property
    def _keeping(self) -> anyio.Lock:
        return anyio.Lock()

    async def keep(self, update: Mapping[str, Any], author: str) -> None:
        """Store writes of the unfinished step at once, and apply them.

        Raises:
            InvalidUpdate, PIIDetectionError: As for `write`; nothing was stored.
            MiddlewareError: A key is `messages`, or was written in the step already, so that the
                order of its writes would not be kept.
            CheckpointError: The journal cannot be written.
        """
        async with self._keeping:
            taken = {"messages", *(one.channel for one in self.writes)} & {*update}
            if taken:
                raise MiddlewareError(
                    f"{author} cannot keep {', '.join(sorted(taken))}: it is `messages`, or this "
                    "step has written it already. Return it as an update instead"
                )
            writes = self.check(update, author)
            before, state = self.state, self.joined(writes, author)
            index, self._next_kept = self._next_kept, self._next_kept + 1
            task = TaskWrites(self.step_id(), kept_mark(index, author), index, self.encode(writes))
            if self.screen is not None:
                await self.screen.keys.store()
            # Its cost, such as that of a model call for a summary, is stored with it.
            meter = self.run.meter
            runs = [self.run.update_run(used=noted(meter))] if meter.is_worth_noting else ()
            batch = Batch(self.run.thread_id, self.ns, writes=[task], runs=runs)
            with anyio.CancelScope(shield=True):
                await self.run.journal.commit(batch)
            self.state = state if self.state is before else self.joined(writes, author)
            self._adopted.extend(writes)

    def take_kept(self) -> None:
        """Apply the writes that an earlier attempt at the unfinished step kept."""
        for task in sorted(self.kept, key=lambda task: task.index):
            self.adopt(self.decode(task.writes))
        self.kept = ()

    async def commit(
        self,
        author: str,
        next_phase: Next,
        *,
        source: Source = "loop",
        tasks: Sequence[TaskWrites] = (),
        run: Run | None = None,
        summary: str = "",
        salt: str = "",
        answers: Mapping[str, Any] | None = None,
        hold: bool = False,
        metered: bool = False,
    ) -> None:
        """Commit the writes of the step and of its tasks as a checkpoint.

        The last checkpoint of the main agent's run also records the run's end. `answers` are stored
        with it. With `hold`, it is stored together with the run's next commit; with `metered`, it
        records the usage of the run tree, so that a resumed run continues counting.

        Raises:
            StaleThread: Somebody else moved the thread; nothing was stored.
        """
        if self.screen is not None:
            await self._keep_secrets(self.screen)
        head = self.head
        step = self.step_id(salt)
        own = TaskWrites(step, author, LAST_INDEX, self.encode(self.writes))
        weight, snapshots = weighed(
            self.schema, step, self.state, self._weight, self._weight + self._added
        )
        checkpoint = Checkpoint(
            thread_id=self.run.thread_id,
            ns=self.ns,
            id=step,
            parent_id=head.id if head else None,
            step=head.step + 1 if head else 0,
            source=source,
            author=author,
            next=next_phase,
            run_id=self.run.run.id or None,
            summary=summary,
            weight=weight,
        )
        if self.ns == "" and next_phase == "end" and self.run.run.status == "running":
            answer = self.answer() if self.run.run.kind == "delegate" else None
            run = self.run.update_run(status="done", answer=answer)
        meter = self.run.meter
        if metered or (run is not None and meter.is_worth_noting):
            run = self.run.update_run(used=noted(meter))
        batch = Batch(
            checkpoint.thread_id,
            self.ns,
            writes=[*tasks, own] if own.writes else tasks,
            checkpoints=[checkpoint],
            runs=[run] if run else (),
            answers=answers or {},
            snapshots=snapshots,
            synced=self.run.synced,
        )
        if hold:
            self.run.journal.hold(batch)
        else:
            journal = self.run.journal
            accepted = source == "input" and self.ns == ""
            with anyio.CancelScope(shield=True):
                await (journal.commit(batch) if accepted else journal.step(batch))
        self.head, self.pending, self.interrupts, self.begun = checkpoint, [], {}, set()
        self.kept, self.claims = (), {}
        self.state = self.schema.without(self.state, EPHEMERAL)
        if not hold and not (self.run.journal.defers and source == "loop"):
            self._cache.put(checkpoint, self.state)
        if self.run.wanted:
            written = [*self._adopted, *self.writes]
            announce(self.run, self._path, self.schema, checkpoint, self.state, written)
        self.writes, self._adopted = [], []
        self._next_kept, self._weight, self._added = FIRST_KEPT, weight, 0

    def remember(self) -> None:
        """Cache the state once all its steps are stored.

        If it contains kept writes of the unfinished step, it is not the head's state, so it is not
        cached: `take_kept` adds those writes again.
        """
        if self.head is not None and not self.writes and not self._adopted:
            self._cache.put(self.head, self.state)

    async def _keep_secrets(self, screen: RunRedaction) -> None:
        """Store the secret of replacements, before or together with the data that contains them."""
        await screen.keys.store()
        secret = screen.secret(self.schema, self.state)
        self.state = self.schema.fold(self.state, secret)
        self.writes.extend(secret)

    async def knows(self, checkpoint_id: str) -> bool:
        """Whether the namespace has a checkpoint, without reading its state."""
        await self.run.journal.settle()
        load = self.run.checkpointer.load
        found = await load(self.run.thread_id, self.ns, checkpoint_id, cached=checkpoint_id)
        return found is not None
