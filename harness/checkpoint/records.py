"""Records: the data types a journal stores.

A *checkpoint* has a parent, step, source, author and time, and the *writes* that lead from the
parent to it. Replaying all writes from the root gives the state. Writes whose step has no
checkpoint yet are *pending*: they belong to an unfinished step, of a living or a dead process, and
are all that is needed to resume it.

Values are bytes, encoded by `harness.state.schema`: a journal knows nothing about schemas.
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
    "ENDED",
    "OPEN",
    "REDACTED",
    "UNFINISHED",
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
"""The phase after a checkpoint."""

RunStatus: TypeAlias = Literal[
    "queued", "running", "needs_approval", "paused", "done", "failed", "cancelled"
]
"""A `queued` run was accepted but has not started: its input is not in the thread yet. A run with
`needs_approval` waits for an answer, a `paused` one to be resumed."""


OPEN: tuple[RunStatus, ...] = ("running", "needs_approval")
"""Statuses of a run that holds its thread: no other run may start there meanwhile."""

UNFINISHED: tuple[RunStatus, ...] = ("queued", "running", "needs_approval", "paused")
"""Statuses of a run that can still do something."""

ENDED: tuple[RunStatus, ...] = ("done", "failed", "cancelled")
"""Statuses of a run that does nothing more."""

InterruptKind: TypeAlias = Literal["approval", "question", "breakpoint", "message", "decision"]
"""Two kinds are not questions. A `message` comes from the run's caller, and the run answers it by
reading it. A `decision` records who answered a question, or allows future calls."""


def step_id(parent_id: str | None, salt: str = "") -> str:
    """Return the id of the step after a checkpoint, such as `ckpt_k3v…`.

    It is computed from the parent, so a resumed step finds its pending writes, and two writers on
    one parent collide instead of interleaving. A fork uses a random salt, which starts a new
    branch. The step that begins a turn has the id of `turn_step_id` instead.
    """
    text = f"{parent_id or ''}\0{salt}".encode(errors="surrogatepass")
    return f"ckpt_{blake2b(text, digest_size=8).hexdigest()}"


_OF_A_TASK = ".task-"
"""A part of the ids of background tasks' threads."""


def turn_step_id(parent_id: str | None, thread_id: str, ns: str = "", run_id: str = "") -> str:
    """Return the id of the step that accepts input on a new thread, or after a finished turn.

    It is unique to this thread and namespace, and so are the ids after it: threads that share ids
    because of a copy or an import share no later ones. Where it can, it is unique to its run, too:
    a thread that was deleted and begun anew, or imported or copied again as it was earlier, shares
    no later ids with the deleted one. So no process takes its cached state of one for that of the
    other. A subagent's namespace contains the id of a step, which is unique already. A background
    task is continued under an id that its caller computes without the run; see
    `three_way_merge.base_of`.

    Args:
        parent_id: The checkpoint before it; None for the first.
        thread_id: The thread.
        ns: The namespace.
        run_id: The run that accepts the input.
    """
    is_computed = bool(ns) or (parent_id is not None and _OF_A_TASK in thread_id)
    own = ns if is_computed else run_id
    return step_id(parent_id, f"{len(own)} {own}{thread_id}")


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
        step_id: The step they belong to; later, the id of its checkpoint.
        task_id: Their author: a tool call's id, or a phase's name.
        index: The task's index in the step; writes are applied in this order, then in list order.
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
        parent_id: The checkpoint before it; None for the first.
        step: Distance from the root, counted from 0.
        source: Why it exists.
        author: What wrote it, such as `input`, `model`, `tools` or `rewind`.
        next: The phase that follows.
        run_id: The run that made it.
        created_at: Unix time in seconds.
        seq: Order of commit within the journal; set by the checkpointer. The head of a thread is
            the checkpoint with the largest number.
        summary: One line for people about this step.
        weight: Bytes of the writes that make up its state: all since the root, or the newest
            snapshot and all since. Counted by the code that makes the checkpoint.
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
        schema: Fingerprint of its channels and reducers; only a `load` with the same fingerprint
            gets it.
        writes: The writes that give the state, starting from nothing.
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
        path: Where it was asked, outermost first: agent name, call id, subagent name, call id …
        message: The question, for a person.
        payload: The subject of the question, such as `{"tool": …, "args": …}`.
        answer_schema: JSON schema of acceptable answers.
        index: The index of the asking call in its step, for a stable order of interrupts.
        answer: The stored answer, or None.
        answered: Whether there is an answer.
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
        """Whether it is a question to a person."""
        return self.kind not in ("message", "decision")


@record
class Run:
    """One run: an invocation of an agent on a thread.

    Attributes:
        id: Its id, which cannot be guessed.
        thread_id: Its thread.
        kind: `drive` (a client's own model called a tool) or `delegate` (our loop works).
        agent: Name of the agent.
        status: Its status.
        goal: Its goal, shortened, for listings.
        owner: Id of the process that works on it while `running`.
        answer: The final text, once done.
        reason: Why it ended without finishing: an error, `limit: …`, or who cancelled it.
        idempotency_key: A second start with the same key finds this run.
        created_at: Unix time in seconds.
        updated_at: Unix time in seconds.
        attempt: How often it was started: 1, and one more for each resume, and if another process
            ended it.
        used: Its usage, as written by `harness.limits.limits.Used`.
        base: For a run without input: the checkpoint from which it continued.
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


REDACTED = "redacted"
"""The digest after a change whose earlier content is stored redacted, so it cannot be restored."""


@record
class FileChange:
    """The version of a file on disk before a tool changed it; stored before the change.

    Attributes:
        thread_id: The thread whose tool changes it.
        run_id: The run.
        path: Path below the backend's root, starting with `/`.
        before: The old content; None if the file did not exist.
        after_digest: SHA-256 (hex) of the new content; None if the file was deleted.
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
    """An event of a run, kept for clients that were away.

    Attributes:
        run_id: The run.
        mode: The stream it belongs to, such as `tasks`.
        path: Names of agents and calls from the main agent to the source of the event.
        data: The data of the event, as in `harness.loop.run.events.Event`.
        created_at: Unix time in seconds.
        seq: Counts up from 1 in its run; set by the checkpointer. If a number is missing, that
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
    """How many events a journal keeps. Older ones are removed when new ones are stored.

    Attributes:
        per_run: The fewest events kept for each run, the newest; events that were stored together
            are removed together.
        seconds: How long they are kept.
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
    """A checkpoint with the writes that rebuild its state.

    Attributes:
        checkpoint: The requested checkpoint.
        base: Id of the checkpoint the writes start from: the caller's cached ancestor, or None
            if they start from nothing.
        writes: Encoded writes from `base` (exclusive) to `checkpoint` (inclusive), oldest first.
            A snapshot may replace the writes before it.
        pending: Finished tasks of the unfinished step after `checkpoint`, by index.
        interrupts: The questions of that unfinished step, answered or not, by index.
    """

    checkpoint: Checkpoint
    base: str | None
    writes: Sequence[StoredWrite]
    pending: Sequence[TaskWrites]
    interrupts: Sequence[Interrupt]


Record: TypeAlias = StoredWrite | Checkpoint | Run | Interrupt | FileChange | RunEvent
"""Records with content of a thread."""
