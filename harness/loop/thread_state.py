"""The state of one namespace of a thread: loaded from the journal, changed by writes, committed.

A commit stores the writes of the step being worked on and makes them a checkpoint, at once. What
a step's finished tasks stored before belongs to it, because a step's id follows from its parent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from harness.checkpoint.base import (
    Batch,
    Checkpoint,
    Interrupt,
    Next,
    Run,
    Snapshot,
    Source,
    StoredWrite,
    TaskWrites,
    step_id,
)
from harness.errors import InvalidUpdate, MiddlewareError
from harness.loop.run_context import RunContext, StateCache
from harness.loop.snapshots import fingerprint, is_due, snapshot_of
from harness.messages import (
    AIMessage,
    HumanMessage,
    Message,
    ToolCall,
    ToolMessage,
    pending_tool_calls,
)
from harness.records import changed
from harness.state import ChannelWrite, Mark, Overwrite, State, StateSchema, joined_lists

if TYPE_CHECKING:
    from harness.limits import Meter
    from harness.loop.screening import Screen
    from harness.redaction.rules import Place

__all__ = ["Copied", "ThreadState", "begun_mark", "claim_mark"]

NOT_ANSWERED = (
    "{name} did not run, or did not finish: the user went on with a new message instead. Call it "
    "again if it is still needed."
)

_LAST = 1_000_000
"""Index of a phase's own writes: after those of the step's tool calls."""

_EPHEMERAL = frozenset({Mark.EPHEMERAL})

_HIDDEN = frozenset({Mark.PRIVATE, Mark.OMIT_FROM_OUTPUT, Mark.UNTRACKED, Mark.EPHEMERAL})
"""Marks of keys that events leave out: callers may not see them, or they have no JSON form."""


_BEGUN = "#begun:"
_KEPT = "#kept:"
_CLAIMS = "#goes-on:"
_FIRST = -1_000_000
"""Index of the first writes that are kept: before those of the step's tool calls."""


def begun_mark(call_id: str, answers: int) -> str:
    """Return the task id that says that a call has begun, after so many answers to it."""
    return f"{call_id}{_BEGUN}{answers}"


def claim_mark(call_id: str, ns: str) -> str:
    """Return the task id that says that a call goes on with the subagent of a namespace."""
    return f"{call_id}{_CLAIMS}{ns}"


class Copied(Overwrite):
    """The messages of a fork: those of its caller, which are clean, and last its task."""


class ThreadState:
    """What a loop knows of its thread.

    Attributes:
        state: The state after the last write, uncommitted ones included.
        head: The newest checkpoint; None on a new thread.
        pending: Finished calls of the unfinished step, left by an earlier attempt.
        kept: What hooks kept in it, likewise; see `take_kept`.
        claims: Calls of the unfinished step that go on with a subagent, by its namespace.
        cut: What reads the writes of subagents that were stopped from outside.
        begun: Marks of calls that must run at most once and have begun in the unfinished step.
        interrupts: Questions of the unfinished step, by id.
        screen: What is redacted in all that becomes part of the state; None for nothing.
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
        self.state: State = schema.initial()
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
        self._writes: list[ChannelWrite] = []
        self._adopted: list[ChannelWrite] = []
        self._weight = 0
        self._added = 0
        self._keeping = anyio.Lock()
        self._next_kept = _FIRST

    @property
    def dirty(self) -> bool:
        """Whether there are writes that are not committed."""
        return bool(self._writes)

    @property
    def step(self) -> str:
        """Id of the step being worked on."""
        return step_id(self.head.id if self.head else None)

    @property
    def next(self) -> Next:
        """The phase that follows the newest checkpoint."""
        return self.head.next if self.head else "end"

    def recall(self) -> bool:
        """Take the head from the cache; return whether it was there and its step is finished.

        If the thread has moved on since, the next commit raises `StaleThread`.
        """
        cached = self._cache.get(self.run.thread_id, self.ns)
        if cached is None or cached[0].next != "end":
            return False
        self.head, self._weight = cached[0], cached[0].weight
        self.state = self.schema.without(cached[1], {Mark.UNTRACKED})
        if self.screen is not None:
            self.screen.recall(self.state, ())
        return True

    async def open(self, checkpoint_id: str | None = None) -> bool:
        """Load the head, or another checkpoint; return whether there is one."""
        thread_id, schema = self.run.thread_id, self.schema
        self._writes, self._adopted = [], []  # what a paused phase wrote: it runs again
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
        start = schema.without(start, {Mark.UNTRACKED})
        if self.screen is not None:
            self.screen.recall(start, found.writes)
        self.state = schema.fold(start, self.decode(found.writes))
        self.head = found.checkpoint
        read = sum(len(one.value) for one in found.writes)
        self._weight = max(self.head.weight, 0 if known else read)
        self._added = sum(len(one.value) for task in found.pending for one in task.writes)
        self.begun = {one.task_id for one in found.pending if _BEGUN in one.task_id}
        self.kept = [one for one in found.pending if one.index < 0]
        self._next_kept = max((one.index + 1 for one in self.kept), default=_FIRST)
        self.claims = {}
        self.pending = []
        for task in found.pending:
            call_id, claims, ns = task.task_id.partition(_CLAIMS)
            if claims:
                self.claims[ns] = call_id
            elif task.index >= 0 and task.task_id not in self.begun:
                self.pending.append(task)
        self.interrupts = {one.id: one for one in found.interrupts}
        if checkpoint_id is None:
            self._cache.put(self.head, self.state)
        return True

    def decode(self, writes: Sequence[StoredWrite]) -> list[ChannelWrite]:
        """Return stored writes as values; keys no schema knows any more are left out."""
        channels = self.schema.channels
        decoded: list[ChannelWrite] = []
        for (name, overwrite), group in groupby(
            writes, key=lambda one: (one.channel, one.overwrite)
        ):
            channel = channels.get(name)
            if channel is None:
                continue
            values = [one.value for one in group]
            if channel.joins and not overwrite:
                values = [joined_lists(values)]
            decoded += [
                ChannelWrite(name, channel.decode(one, overwrite=overwrite)) for one in values
            ]
        if self.screen is not None:  # what was stored before it was redacted
            decoded = self.screen.writes(self.schema, decoded, "tools", lenient=True)
        return decoded

    def encode(self, writes: Sequence[ChannelWrite]) -> tuple[StoredWrite, ...]:
        """Return writes as the journal stores them; keys that are not stored are left out."""
        channels = self.schema.channels
        encoded = [
            StoredWrite(name, channels[name].encode(value), isinstance(value, Overwrite))
            for name, value in writes
            if channels[name].stored
        ]
        for one in encoded:
            self._added += len(one.value)
        return tuple(encoded)

    def write(self, update: Mapping[str, Any], author: str, place: Place | None = None) -> None:
        """Add writes to the step being worked on.

        Raises:
            InvalidUpdate: A key is not declared, a value does not fit, or a reducer refused it.
            PIIDetectionError: A rule blocks a text in it.
        """
        writes = self.check(update, author, place)
        self.state = self.joined(writes, author)
        self._writes.extend(writes)

    def joined(self, writes: Sequence[ChannelWrite], author: str) -> State:
        """Return the state with the writes in it, without making them.

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
        """Add messages the loop made itself, which need no check."""
        write = ChannelWrite("messages", messages)
        if self.screen is not None:
            (write,) = self.screen.writes(self.schema, [write])
        self.state = self.schema.fold(self.state, [write])
        self._writes.append(write)

    def check(
        self, update: Mapping[str, Any], author: str, place: Place | None = None
    ) -> list[ChannelWrite]:
        """Return an update as writes, redacted, without making them.

        Raises:
            InvalidUpdate, PIIDetectionError: As for `write`.
        """
        writes = self.schema.writes(update, author)
        try:
            writes = [ChannelWrite(name, self.schema[name].coerce(value)) for name, value in writes]
        except InvalidUpdate as error:
            raise InvalidUpdate(f"{author}: {error}") from error
        return writes if self.screen is None else self.screen.writes(self.schema, writes, place)

    def answer(self) -> str:
        """Return the newest answer that has text."""
        for message in reversed(self.state["messages"]):
            if isinstance(message, AIMessage) and message.text.strip():
                return message.text
        return ""

    def adopt(self, writes: Sequence[ChannelWrite]) -> None:
        """Fold writes whose bytes the step's tasks store themselves."""
        self.state = self.schema.fold(self.state, writes)
        self._adopted.extend(writes)

    async def keep(self, update: Mapping[str, Any], author: str) -> None:
        """Store writes of the unfinished step at once, and make them.

        Raises:
            InvalidUpdate, PIIDetectionError: As for `write`; nothing was stored.
            MiddlewareError: A key is `messages`, or was written in the step already, so that the
                order of its writes would not be kept.
            CheckpointError: The journal cannot be written.
        """
        async with self._keeping:
            await self._keep(update, author)

    async def _keep(self, update: Mapping[str, Any], author: str) -> None:
        taken = {"messages", *(one.channel for one in self._writes)} & {*update}
        if taken:
            raise MiddlewareError(
                f"{author} cannot keep {', '.join(sorted(taken))}: it is `messages`, or this step "
                "has written it already. Return it as an update instead"
            )
        writes = self.check(update, author)
        before, state = self.state, self.joined(writes, author)
        index, self._next_kept = self._next_kept, self._next_kept + 1
        task = TaskWrites(
            self.step, f"{_KEPT}{index - _FIRST}:{author}", index, self.encode(writes)
        )
        if self.screen is not None:
            await self.screen.keys.store()
        # What it cost, such as the model call behind a summary, is stored with it.
        meter = self.run.meter
        spent = meter.model_calls or meter.tokens
        runs = [self.run.update_run(used=_used(meter))] if spent else ()
        batch = Batch(self.run.thread_id, self.ns, writes=[task], runs=runs)
        with anyio.CancelScope(shield=True):
            await self.run.journal.commit(batch)
        self.state = state if self.state is before else self.joined(writes, author)
        self._adopted.extend(writes)

    def take_kept(self) -> None:
        """Make the writes that an earlier attempt at the unfinished step kept."""
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
        hold: bool = False,
        metered: bool = False,
    ) -> None:
        """Make the writes of the step, and what its tasks left, a checkpoint.

        The checkpoint that ends the main agent's run records the run's end with it. With `hold`
        it is stored together with whatever the run stores next; with `metered` it records what
        the run tree has used of its limits, so that a resumed run goes on counting.

        Raises:
            StaleThread: Somebody else moved the thread; nothing was stored.
        """
        if self.screen is not None:
            await self._keep_secrets(self.screen)
        head = self.head
        step = step_id(head.id if head else None, salt)
        own = TaskWrites(step, author, _LAST, self.encode(self._writes))
        weight, snapshots = self._weigh(step)
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
        counts = meter.limits.for_thread or meter.model_calls or meter.tokens
        if metered or (run is not None and counts):
            run = self.run.update_run(used=_used(meter))
        batch = Batch(
            checkpoint.thread_id,
            self.ns,
            writes=[*tasks, own] if own.writes else tasks,
            checkpoints=[checkpoint],
            runs=[run] if run else (),
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
        self.state = self.schema.without(self.state, _EPHEMERAL)
        if not hold and not (self.run.journal.defers and source == "loop"):
            self._cache.put(checkpoint, self.state)
        self._announce(checkpoint)
        self._writes, self._adopted = [], []
        self._next_kept = _FIRST
        self._weight, self._added = weight, 0

    def remember(self) -> None:
        """Put the state into the cache, once all of its steps are stored.

        With what the unfinished step kept in it, it is not the head's: `take_kept` adds that again.
        """
        if self.head is not None and not self.dirty and not self._adopted:
            self._cache.put(self.head, self.state)

    async def _keep_secrets(self, screen: Screen) -> None:
        """Store what replacements were made with, before or with what they are in."""
        await screen.keys.store()
        secret = screen.secret(self.schema, self.state)
        self.state = self.schema.fold(self.state, secret)
        self._writes.extend(secret)

    def _weigh(self, step: str) -> tuple[int, Sequence[Snapshot]]:
        """Return the weight of the step about to be committed, and a snapshot if it is due."""
        weight = self._weight + self._added
        if is_due(self._weight, weight):
            made = snapshot_of(self.schema, step, self.state, weight)
            if made is not None:
                snapshot, size = made
                return size, [snapshot]
        return weight, ()

    def _announce(self, checkpoint: Checkpoint) -> None:
        if self.run.wants("checkpoints"):
            self.run.send(
                "checkpoints",
                self._path,
                {
                    "checkpoint_id": checkpoint.id,
                    "step": checkpoint.step,
                    "author": checkpoint.author,
                    "next": checkpoint.next,
                    "summary": checkpoint.summary,
                },
            )
        if self.run.wants("updates"):
            written = self._json([*self._adopted, *self._writes])
            self.run.send("updates", self._path, {checkpoint.author: written})
        if self.run.wants("values"):
            schema, shown = self.schema, self.schema.without(self.state, _HIDDEN)
            values = {name: schema[name].to_json(value) for name, value in shown.items()}
            self.run.send("values", self._path, values)

    def _json(self, writes: Sequence[ChannelWrite]) -> dict[str, JsonValue]:
        """Return the writes of keys that callers may see, those of one key put together."""
        shown: dict[str, JsonValue] = {}
        for name, value in writes:
            channel = self.schema[name]
            if not channel.marks & _HIDDEN:
                shown[name] = _together(shown.get(name), from_json(channel.encode(value)))
        return shown

    def close_calls(self, text: str) -> None:
        """Answer the calls that have no result with an error; `{name}` stands for the tool."""
        closing = [_error(call, text) for call in pending_tool_calls(self.state["messages"])]
        if closing:
            self.write_messages(closing)

    async def knows(self, checkpoint_id: str) -> bool:
        """Whether the namespace has a checkpoint; its state is not read."""
        await self.run.journal.settle()
        load = self.run.checkpointer.load
        found = await load(self.run.thread_id, self.ns, checkpoint_id, cached=checkpoint_id)
        return found is not None

    async def accept(
        self,
        update: Mapping[str, Any],
        first: Next,
        summary: str,
        *,
        hold: bool = False,
        salt: str = "",
    ) -> None:
        """Commit input; what an earlier run left open is closed in the same step.

        Finished calls of an interrupted step keep their results, the others are answered with an
        error (peers B1.9), all in call order. With a salt it begins a branch, also where the
        thread has moved on.
        """
        left = [*self.kept, *self.pending]
        self.take_kept()
        closing = self._closing_tasks()
        for task in sorted([*self.pending, *closing], key=lambda task: task.index):
            self.adopt(self.decode(task.writes))
        if salt:  # what was stored for the step that would have followed is stored for this one
            step = step_id(self.head.id if self.head else None, salt)
            closing = [changed(task, step_id=step) for task in (*left, *closing)]
        self._take_in(update)
        if self.screen is not None:
            summary = self._screened_summary(self.screen, summary)
        author = "client" if first in ("after_model", "tools") else "input"
        run = self.run.run if self.ns == "" else None
        await self.commit(
            author,
            first,
            source="fork" if salt else "input",
            tasks=closing,
            run=run,
            summary=summary,
            salt=salt,
            hold=hold,
        )

    def _take_in(self, update: Mapping[str, Any]) -> None:
        """Write input. What a fork copies of its caller is clean, so only its task is looked at.

        It is no input either: the caller may have read in a tool result what no input may hold.
        """
        messages = update.get("messages")
        if self.screen is None or not isinstance(messages, Copied):
            self.write(update, "input", "input")
            return
        *copied, task = messages.value
        update = {**update, "messages": Overwrite(copied)}
        writes = self.schema.writes(update, "input")
        writes = [ChannelWrite(name, self.schema[name].coerce(value)) for name, value in writes]
        self.state = self.joined(writes, "input")
        self._writes.extend(writes)
        self.write({"messages": [task]}, "input", "input")

    def _screened_summary(self, screen: Screen, summary: str) -> str:
        """Return the summary of input, and set the run's goal: both made of clean messages.

        What was cut from the raw text could hold a part of what nobody would recognise any more.
        """
        said = [
            one.text
            for name, value in self._writes
            if name == "messages" and not isinstance(value, Overwrite)
            for one in value
            if isinstance(one, HumanMessage)
        ]
        if self.ns == "" and self.run.run.kind == "delegate":
            self.run.update_run(goal=said[-1][:500] if said else "")
        return said[-1][:100] if said else screen.text(summary, "input")

    def _closing_tasks(self) -> list[TaskWrites]:
        """Return error results of the calls that an interrupted step leaves unfinished."""
        messages: Sequence[Message] = self.state["messages"]
        answer = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
        closed = {task.task_id for task in self.pending}
        unanswered = {call.id for call in pending_tool_calls(messages)} - closed
        return [
            TaskWrites(self.step, call.id, index, self.encode([ChannelWrite("messages", [result])]))
            for index, call in enumerate(answer.tool_calls if answer else ())
            if call.id in unanswered
            for result in [_error(call, NOT_ANSWERED)]
        ]


def _used(meter: Meter) -> str:
    return to_json(meter.used().to_json()).decode()


def _error(call: ToolCall, text: str) -> ToolMessage:
    return ToolMessage(call.id, text.replace("{name}", call.name), call.name, "error")


def _together(first: JsonValue, second: JsonValue) -> JsonValue:
    """Return two writes of one key as one: all items, all members, or else the later one."""
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **second}
    return second
