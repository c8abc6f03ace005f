"""Thread input: stores input and messages as steps, and closes open calls of earlier runs.

Messages are read before a model call, in a step of their own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._internal.records import changed
from ..checkpoint.base import Interrupt, Next, TaskWrites, step_id
from ..errors import ThreadBusy
from ..messages.message import (
    HumanMessage,
    ToolCall,
    ToolMessage,
    newest_tool_calls,
    pending_tool_calls,
)
from ..state.channels import ChannelWrite, Overwrite
from .run.caller_messages import TOLD, message_event
from .run.context import RunContext
from .thread_state import ThreadState

if TYPE_CHECKING:
    from .run.redaction import RunRedaction

__all__ = [
    "Copied",
    "Mailbox",
    "accept_input",
    "add_between_runs",
    "close_calls",
    "open_for_run",
]

_NOT_ANSWERED = (
    "{name} did not run, or did not finish: the user went on with a new message instead. Call it "
    "again if it is still needed."
)


_LOOKED_AT = 50
"""The most checkpoints to search for one with a run; those made outside runs have none."""


class Copied(Overwrite):
    """The messages of a fork: those of its caller, already redacted, and its task as the last."""


async def open_for_run(thread: ThreadState) -> None:
    """Load the head of the main agent's namespace for a new run.

    A thread that was copied or imported in the middle of a turn shares the unfinished step and its
    id with its source. So it continues from its own fork, which takes over the finished calls of
    the step; subagents that worked in the step start over.
    """
    await thread.open()
    head = thread.head
    if head is None or head.next == "end" or not await _is_of_another_thread(thread):
        return
    run, salt = thread.run, secrets.token_hex(8)
    left = await run.checkpointer.load(run.thread_id, thread.ns, head.id, cached=head.id)
    following = step_id(thread.step_id(salt))
    await thread.commit(
        "fork",
        head.next,
        source="fork",
        tasks=[changed(task, step_id=following) for task in (left.pending if left else ())],
        summary=f"fork of {head.id}",
        salt=salt,
    )
    await thread.open()


async def _is_of_another_thread(thread: ThreadState) -> bool:
    """Whether the newest run that made a checkpoint here belongs to another thread."""
    checkpointer, thread_id = thread.run.checkpointer, thread.run.thread_id
    made = await checkpointer.history(thread_id, thread.ns, limit=_LOOKED_AT)
    newest = next((one.run_id for one in made if one.run_id is not None), None)
    run = None if newest is None else await checkpointer.run(newest)
    return run is None or run.thread_id != thread_id


async def accept_input(
    thread: ThreadState,
    update: Mapping[str, Any],
    first: Next,
    summary: str,
    *,
    hold: bool = False,
    salt: str = "",
) -> None:
    """Commit input.

    Finished calls of an interrupted step keep their results, the others are answered with an
    error, all in call order.

    Args:
        thread: Opened at the checkpoint that the input follows.
        update: The writes of the input.
        first: The next phase.
        summary: A summary of the checkpoint, for people.
        hold: Whether to store it together with the run's next commit.
        salt: If not empty, starts a branch, even if the thread has changed.

    Raises:
        InvalidUpdate, PIIDetectionError: As for `ThreadState.write`; nothing was stored.
        StaleThread: Another process changed the thread; nothing was stored.
    """
    left = [*thread.kept, *thread.pending]
    if thread.kept:
        thread.take_kept()
    closing = _closing_tasks(thread)
    for task in sorted([*thread.pending, *closing], key=lambda task: task.index):
        thread.adopt(thread.decode(task.writes))
    if salt:  # writes for the step that would have followed are stored for this one
        step = thread.step_id(salt)
        closing = [changed(task, step_id=step) for task in (*left, *closing)]
    _take_in(thread, update)
    if thread.screen is not None:
        summary = _screened_summary(thread, thread.screen, summary)
    await thread.commit(
        "client" if first in ("after_model", "tools") else "input",
        first,
        source="fork" if salt else "input",
        tasks=closing,
        run=thread.run.run if thread.ns == "" and thread.run.run.id else None,
        summary=summary,
        salt=salt,
        hold=hold,
    )


async def add_between_runs(
    thread: ThreadState, update: Mapping[str, Any], *, gives_up: bool
) -> None:
    """Commit input without a run, after the turn before it.

    Args:
        thread: The main agent's namespace, opened at its head for nobody's run.
        update: The writes of the input.
        gives_up: Whether a turn that is not finished ends here, with the results that it has.

    Raises:
        ThreadBusy: The turn is not finished, and is not given up; nothing was stored.
        InvalidUpdate, PIIDetectionError, StaleThread: As for `accept_input`.
    """
    if thread.next == "end":
        thread.write(update, "input")
        await thread.commit("input", "end", source="input", salt=secrets.token_hex(8))
        return
    if not gives_up:
        raise ThreadBusy(
            f"thread {thread.run.thread_id} has a run that is not finished; nothing was stored. "
            "Resume it, or send input with `ainvoke`, which gives it up"
        )
    await open_for_run(thread)
    await accept_input(thread, update, "end", "")


def _take_in(thread: ThreadState, update: Mapping[str, Any]) -> None:
    """Write input. Messages that a fork copies are already redacted, so only its task is checked.

    The copies do not count as input: tool results may contain what input must not.
    """
    messages = update.get("messages")
    if thread.screen is None or not isinstance(messages, Copied):
        thread.write(update, "input", "input")
        return
    *copied, task = messages.value
    thread.write({**update, "messages": Overwrite(copied)}, "input", is_clean=True)
    thread.write({"messages": [task]}, "input", "input")


def _screened_summary(thread: ThreadState, screen: RunRedaction, summary: str) -> str:
    """Return the summary of input, and set the run's goal, both from redacted messages.

    If the raw text were cut first, a secret could be cut in half, and no longer be recognized.
    """
    said = [
        one.text
        for name, value in thread.writes
        if name == "messages" and not isinstance(value, Overwrite)
        for one in value
        if isinstance(one, HumanMessage)
    ]
    if thread.ns == "" and thread.run.run.kind == "delegate":
        thread.run.update_run(goal=said[-1][:500] if said else "")
    return said[-1][:100] if said else screen.text(summary, "input")


def _closing_tasks(thread: ThreadState) -> list[TaskWrites]:
    """Return error results for the unfinished calls of an interrupted step."""
    calls, answered = newest_tool_calls(thread.state["messages"])
    closed = answered | {task.task_id for task in thread.pending}
    return [
        TaskWrites(
            thread.step_id(), call.id, index, thread.encode([ChannelWrite("messages", [result])])
        )
        for index, call in enumerate(calls)
        if call.id not in closed
        for result in [_not_done(call, _NOT_ANSWERED)]
    ]


def close_calls(thread: ThreadState, text: str) -> None:
    """Answer calls without a result with an error; `{name}` is replaced by the tool's name."""
    closing = [_not_done(call, text) for call in pending_tool_calls(thread.state["messages"])]
    if closing:
        thread.write_messages(closing)


def _not_done(call: ToolCall, text: str) -> ToolMessage:
    """Return the result of a call that was not made; `{name}` is replaced by its tool's name."""
    return ToolMessage(call.id, text.replace("{name}", call.name), call.name, "error")


_LOOK_SECONDS = 0.2
"""Seconds between checks for messages from other processes."""


class Mailbox:
    """The messages of one run, for the loop that executes it.

    The journal is not read before each model call, because that would slow down fast models.
    Messages sent through this process are announced in `TOLD`.

    Args:
        run: The run.
    """

    def __init__(self, run: RunContext) -> None:
        self._run = run
        # A new run has none yet.
        self._looked = run.run.created_at if run.run.attempt == 1 else 0.0
        self._found: Sequence[Interrupt] = ()
        self._taken: set[str] = set()  # the steps with them may not be stored yet

    @property
    def is_due(self) -> bool:
        """Whether it is time to check, or there are messages."""
        passed = time.time() - self._looked
        return bool(self._found) or self._run.run.id in TOLD or not 0 <= passed < _LOOK_SECONDS

    async def has_some(self) -> bool:
        """Check if it is time to; return whether there are messages."""
        if self.is_due and not self._found:
            await self._look()
        return bool(self._found)

    async def _look(self) -> None:
        run_id = self._run.run.id
        TOLD.discard(run_id)
        known = await self._run.checkpointer.interrupts(run_id)
        self._looked = time.time()
        self._found = [
            one
            for one in known
            if one.kind == "message" and not one.answered and one.id not in self._taken
        ]

    async def take(self, thread: ThreadState, path: tuple[str, ...]) -> None:
        """Commit the messages as a step of the thread.

        Raises:
            StaleThread: Another process changed the thread; they stay unread.
        """
        await self._look()
        if not self._found or thread.interrupts:
            return  # a question of one step, and its answer, would not be found in another
        found, self._found = self._found, ()
        step = thread.step_id()
        thread.write_messages([HumanMessage(one.message, id=one.id) for one in found])
        events = [message_event("message_taken", one, checkpoint_id=step) for one in found]
        for event in events:
            self._run.note("tasks", path, event)
        answers = {one.id: step for one in found}
        self._taken |= answers.keys()
        summary = found[-1].message[:100]
        await thread.commit("caller", "model", answers=answers, summary=summary)
        for event in events:
            self._run.send("tasks", path, event)
