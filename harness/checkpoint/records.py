"""Records: the data types a journal stores.

A *checkpoint* holds its parent, step, source, author and time; beside it are the *writes* that
lead from the parent to it. State is the fold of writes from the root. Writes whose step has no
checkpoint row yet are *pending*: they belong to a step that is still being worked on, or that a
dead process left behind, and are all that a resume needs.

Values are bytes, encoded by `harness.state.schema`: a journal knows nothing of schemas.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Literal, TypeAlias

from pydantic import JsonValue

from .._internal.records import record

__all__ = [
    "OPEN",
    "Checkpoint",
    "EventLimits",
    "FileChange",
    "Interrupt",
    "InterruptKind",
    "Next",
    "Record",
    "Run",
    "RunEvent",
    "RunStatus",
    "Snapshot",
    "Source",
    "StoredWrite",
    "TaskWrites",
    "ThreadInfo",
    "ThreadSlice",
    "step_id",
    "turn_step_id",
]

Source: TypeAlias = Literal["input", "loop", "update", "fork"]
"""Why a checkpoint exists: accepted input, the loop, `update_state`, or a fork or rewind."""

Next: TypeAlias = Literal["before_agent", "model", "after_model", "tools", "after_agent", "end"]
"""The phase that follows a checkpoint."""

RunStatus: TypeAlias = Literal[
    "queued", "running", "needs_approval", "paused", "done", "failed", "cancelled"
]
"""`queued` was accepted and has not begun: its input is not in the thread yet. `needs_approval`
waits for an answer, `paused` for somebody to resume it."""


OPEN: tuple[RunStatus, ...] = ("running", "needs_approval")
"""Statuses of a run that its thread is kept for: no other run may begin there meanwhile."""

InterruptKind: TypeAlias = Literal["approval", "question", "breakpoint", "message", "decision"]
"""Two are no questions. A `message` its run's caller has sent, and the run answers it by taking it.
A `decision` says who answered a question, or lets calls through that are yet to come."""


def step_id(parent_id: str | None, salt: str = "") -> str:
    """Return the id of the step after a checkpoint, such as `ckpt_k3v…`.

    It follows from the parent, so a resumed step finds its pending writes and two writers on one
    parent collide instead of interleaving. A fork gives a random salt and so starts a new branch.
    The step that begins a turn has the id of `turn_step_id` instead.
    """
    text = f"{parent_id or ''}\0{salt}".encode(errors="surrogatepass")
    return f"ckpt_{blake2b(text, digest_size=8).hexdigest()}"


def turn_step_id(parent_id: str | None, thread_id: str, ns: str = "") -> str:
    """Return the id of the step that takes input on a new thread, or after a finished turn.

    It is of this thread and namespace alone, and so are those that follow from it: threads that
    were given the same ids by a copy or an import have no further ones in common.
    """
    return step_id(parent_id, f"{len(ns)} {ns}{thread_id}")


@record
class StoredWrite:
    """One write of a step, encoded. With `overwrite`, the reducer is bypassed."""

    channel: str
    value: bytes
    overwrite: bool = False


@record
class TaskWrites:
    """All writes of one finished task of a step, such as one tool call.

    Attributes:
        step_id: The step they belong to, which is the id of its checkpoint once there is one.
        task_id: Who wrote them: a tool call's id, or a phase's name.
        index: The task's place in the step; writes are folded in this order, then in list order.
        writes: The writes.
    """

    step_id: str
    task_id: str
    index: int
    writes: tuple[StoredWrite, ...]


@record
class Checkpoint:
    """Record of a finished step, without its values.

    Attributes:
        thread_id: The thread.
        ns: Namespace: empty for the main agent, `task:<call id>@<step id>` for a subagent, parts
            joined by `/` for deeper ones.
        id: Unique within the thread and namespace.
        parent_id: The checkpoint it grew from; None for the first.
        step: Distance from the root, counted from 0.
        source: Why it exists.
        author: What wrote it, such as `input`, `model`, `tools` or `rewind`.
        next: The phase that follows.
        run_id: The run that made it.
        created_at: Unix time in seconds.
        seq: Order of commit within the journal; set by the checkpointer. The head of a thread is
            the checkpoint with the largest.
        summary: One line for people: what happened in this step.
        weight: Bytes of the writes that its state is folded from: all since the root, or the
            newest snapshot and all since. Counted by whoever makes the checkpoint.
    """

    thread_id: str
    ns: str
    id: str
    parent_id: str | None
    step: int
    source: Source
    author: str
    next: Next
    run_id: str | None = None
    created_at: float = field(default_factory=time.time)
    seq: int = 0
    summary: str = ""
    weight: int = 0


@record
class Snapshot:
    """State at a checkpoint, as overwriting writes: a cache, never the only copy.

    Attributes:
        checkpoint_id: The checkpoint, of the batch's namespace.
        schema: Fingerprint of the channels and reducers that it was folded with; only a `load`
            that names the same one is given it.
        writes: What folds to the state, starting from nothing.
    """

    checkpoint_id: str
    schema: str
    writes: tuple[StoredWrite, ...]


@record
class Interrupt:
    """A durable question that a run waits for.

    Attributes:
        id: Stable: the same question of the same call gets the same id after a restart.
        thread_id: The thread.
        ns: Namespace of the agent that asks.
        step_id: The step that waits.
        run_id: The run that waits.
        kind: `approval`, `question`, `breakpoint`, which any answer passes, `message` or
            `decision`.
        path: Where it arose, outermost first: agent name, call id, subagent name, call id …
        message: The question, for a person.
        payload: What is asked about, such as `{"tool": …, "args": …}`.
        answer_schema: JSON schema of acceptable answers.
        index: The asking call's place in its step; gives interrupts a stable order.
        answer: The stored answer, or None.
        answered: Whether there is one.
    """

    id: str
    thread_id: str
    ns: str
    step_id: str
    run_id: str
    kind: InterruptKind
    path: tuple[str, ...]
    message: str
    payload: dict[str, JsonValue]
    answer_schema: dict[str, JsonValue]
    index: int = 0
    answer: JsonValue = None
    answered: bool = False

    @property
    def is_question(self) -> bool:
        """Whether it asks something of a person."""
        return self.kind not in ("message", "decision")


@record
class Run:
    """One run: an invocation of an agent on a thread.

    Attributes:
        id: Unguessable.
        thread_id: The thread it moves.
        kind: `drive` (a client's own model called a tool) or `delegate` (our loop works).
        agent: Name of the agent.
        status: Where it stands.
        goal: What was asked, shortened, for listings.
        owner: Id of the process that works on it while `running`.
        answer: The final text, once done.
        reason: Why it ended other than by finishing: an error, `limit: …`, who cancelled.
        idempotency_key: A second start with the same key finds this run.
        created_at: Unix time in seconds.
        updated_at: Unix time in seconds.
        attempt: How many times it has been begun: 1, and one more for each resume, and for an end
            that somebody else gave it.
        used: What it has used of its limits, as `harness.limits.limits.Used` writes it.
        base: For a run without input of its own: the checkpoint it went on from.
    """

    id: str
    thread_id: str
    kind: Literal["drive", "delegate"]
    agent: str
    status: RunStatus = "running"
    goal: str = ""
    owner: str | None = None
    answer: str | None = None
    reason: str | None = None
    idempotency_key: str | None = None
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    attempt: int = 1
    used: str = ""
    base: str | None = None


@record
class FileChange:
    """Version of a file on a real disk before a tool changed it; written before the change.

    Attributes:
        thread_id: The thread whose tool changes it.
        run_id: The run.
        path: Path below the backend's root, starting with `/`.
        before: Content before; None when the file did not exist.
        after_digest: SHA-256 (hex) of the content after; None when the file is deleted.
        checkpoint_seq: Newest checkpoint of the thread at that moment; set by the checkpointer.
        seq: Order of the changes; set by the checkpointer.
    """

    thread_id: str
    run_id: str
    path: str
    before: bytes | None
    after_digest: str | None
    checkpoint_seq: int = 0
    seq: int = 0


@record
class RunEvent:
    """Something that happened in a run, kept for a client that was away.

    Attributes:
        run_id: The run.
        mode: The stream it belongs to, such as `tasks`.
        path: Agent and call names from the main agent to the source of the event.
        data: What happened, as in `harness.loop.run.events.Event`.
        created_at: Unix time in seconds.
        seq: Counts up from 1 in its run; set by the checkpointer. Where a number is missing, an
            event is no longer kept.
    """

    run_id: str
    mode: str
    path: tuple[str, ...]
    data: dict[str, JsonValue]
    created_at: float = field(default_factory=time.time)
    seq: int = 0


@record
class EventLimits:
    """Number of events that a journal keeps. Older ones go when further ones are stored.

    Attributes:
        per_run: The newest of each run that stay, at least; those stored together go together.
        seconds: How long they stay.
    """

    per_run: int = 1_000
    seconds: float = 7 * 86_400.0


@record
class ThreadInfo:
    """One row of a list of threads."""

    thread_id: str
    checkpoints: int
    created_at: float
    updated_at: float
    last_run: Run | None = None


@record
class ThreadSlice:
    """Checkpoint with the writes that rebuild its state.

    Attributes:
        checkpoint: The checkpoint asked for.
        base: Id of the checkpoint the writes start from: the caller's cached ancestor, or None
            when they start from nothing.
        writes: Encoded writes from `base` (exclusive) to `checkpoint` (inclusive), oldest first.
            Those before a snapshot may be replaced by it.
        pending: Finished tasks of the unfinished step after `checkpoint`, by index.
        interrupts: The questions of that unfinished step, answered or not, by index.
    """

    checkpoint: Checkpoint
    base: str | None
    writes: Sequence[StoredWrite]
    pending: Sequence[TaskWrites]
    interrupts: Sequence[Interrupt]


Record: TypeAlias = StoredWrite | Checkpoint | Run | Interrupt | FileChange | RunEvent
"""What holds content of a thread."""
