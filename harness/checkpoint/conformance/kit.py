"""Conformance kit tools: how laws are declared and checked, and helpers to make records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeAlias, cast

import anyio

from ..._internal.records import record
from ..base import (
    Batch,
    Checkpoint,
    Checkpointer,
    Interrupt,
    Run,
    RunStatus,
    Source,
    StoredWrite,
    TaskWrites,
    ThreadSlice,
    step_id,
)

__all__ = [
    "THREAD",
    "Law",
    "Laws",
    "MakeJournal",
    "checkpoint",
    "equal",
    "grow",
    "head_id",
    "holds",
    "interrupt",
    "loaded",
    "refused",
    "run",
    "step_batch",
    "task",
    "values",
]


MakeJournal: TypeAlias = Callable[[], AbstractAsyncContextManager[Checkpointer]]
"""Opens a new, empty journal; leaving the context closes it."""

_SECONDS = 60.0
"""How long one law may take before it counts as broken."""


@record
class Law:
    """One promise of a checkpointer.

    Attributes:
        group: The topic, such as `forks`.
        name: The promise, in words.
        check: Raises if an empty journal breaks it.
    """

    group: str
    name: str
    check: Callable[[Checkpointer], Awaitable[None]]

    async def verify(self, make: MakeJournal) -> None:
        """Check the law on a separate journal.

        Raises:
            AssertionError: The law is broken.
            TimeoutError: It could not be checked within a minute.
        """
        async with make() as journal:
            with anyio.fail_after(_SECONDS):
                await self.check(journal)


class Laws(list[Law]):
    """The laws of one group, in order.

    Args:
        group: The topic.
    """

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group

    def law(
        self, check: Callable[[Checkpointer], Awaitable[None]]
    ) -> Callable[[Checkpointer], Awaitable[None]]:
        """Add a function as a law; its name states the promise."""
        self.append(Law(self.group, check.__name__.replace("_", " "), check))
        return check


def equal(actual: object, expected: object) -> None:
    """Raise `AssertionError` unless both are equal; a tuple equals a list of the same items."""
    if isinstance(actual, tuple):
        actual = list(cast("tuple[object, ...]", actual))
    if isinstance(expected, tuple):
        expected = list(cast("tuple[object, ...]", expected))
    if actual != expected:
        raise AssertionError(f"expected {expected!r}\n     got {actual!r}")


def holds(condition: bool, what: str) -> None:
    """Raise `AssertionError` unless the condition holds."""
    if not condition:
        raise AssertionError(f"not so: {what}")


@contextmanager
def refused(error: type[Exception]) -> Generator[None]:
    """Expect an error of this type."""
    try:
        yield
    except error:
        pass
    else:
        raise AssertionError(f"expected {error.__name__}, but nothing was refused")


THREAD = "thread_1"


def task(
    step: str, task_id: str, index: int = 0, *values: str, overwrite: bool = False
) -> TaskWrites:
    """Return a task that wrote the values to `messages`."""
    writes = tuple(StoredWrite("messages", value.encode(), overwrite) for value in values)
    return TaskWrites(step, task_id, index, writes)


def checkpoint(
    parent: str | None,
    *,
    thread: str = THREAD,
    ns: str = "",
    checkpoint_id: str | None = None,
    step: int = 0,
    source: Source = "loop",
    **fields: Any,
) -> Checkpoint:
    """Return a checkpoint that grew from `parent`."""
    return Checkpoint(
        thread,
        ns,
        checkpoint_id or step_id(parent),
        parent,
        step,
        source,
        "model",
        "tools",
        **fields,
    )


def step_batch(
    parent: str | None,
    *values: str,
    thread: str = THREAD,
    ns: str = "",
    step: int = 0,
    source: Source = "loop",
    salt: str = "",
    **fields: Any,
) -> Batch:
    """Return a finished step: one task that wrote the values, and its checkpoint."""
    new = step_id(parent, salt)
    made = checkpoint(
        parent, thread=thread, ns=ns, checkpoint_id=new, step=step, source=source, **fields
    )
    return Batch(thread, ns, writes=[task(new, "model", 0, *values)], checkpoints=[made])


async def grow(
    journal: Checkpointer,
    *values: str,
    thread: str = THREAD,
    ns: str = "",
    parent: str | None = None,
    **fields: Any,
) -> list[str]:
    """Commit one step for each value, each on the one before; return the checkpoints' ids."""
    ids: list[str] = []
    for step, value in enumerate(values):
        batch = step_batch(parent, value, thread=thread, ns=ns, step=step, **fields)
        await journal.commit(batch)
        parent = batch.checkpoints[0].id
        ids.append(parent)
    return ids


def run(run_id: str, *, thread: str = THREAD, status: RunStatus = "done", **fields: Any) -> Run:
    """Return a run of a thread."""
    return Run(run_id, thread, "delegate", "main", status, **fields)


def interrupt(
    interrupt_id: str, step: str, *, thread: str = THREAD, run_id: str = "run_1", **fields: Any
) -> Interrupt:
    """Return a question that a step waits for."""
    return Interrupt(
        interrupt_id,
        thread,
        fields.pop("ns", ""),
        step,
        run_id,
        "approval",
        ("main", "call_1"),
        "Delete the file?",
        {"tool": "delete_file", "args": {"path": "/ä"}},
        {"type": "string", "enum": ["yes", "no"]},
        **fields,
    )


def values(writes: Sequence[StoredWrite]) -> list[str]:
    """Return the written values as text."""
    return [write.value.decode() for write in writes]


async def loaded(
    journal: Checkpointer,
    checkpoint_id: str | None = None,
    *,
    thread: str = THREAD,
    ns: str = "",
    cached: str | None = None,
) -> ThreadSlice:
    """Return a checkpoint that must be there, by default the head."""
    found = await journal.load(thread, ns, checkpoint_id, cached=cached)
    if found is None:
        raise AssertionError(f"{checkpoint_id or 'the head'} of thread {thread!r} is not there")
    return found


async def head_id(journal: Checkpointer, thread: str = THREAD, ns: str = "") -> str | None:
    """Return the id of the head, or None if there is none."""
    found = await journal.load(thread, ns)
    return found.checkpoint.id if found else None


async def states_of(
    journal: Checkpointer, thread: str = THREAD, ns: str = ""
) -> dict[str, list[StoredWrite]]:
    """Return the writes that lead to each checkpoint, from the root."""
    page = await journal.history(thread, ns, limit=10_000)
    found = [await loaded(journal, one.id, thread=thread, ns=ns) for one in page]
    return {one.checkpoint.id: list(one.writes) for one in found}


SUB = "task:call_1@ckpt_1"
"""The namespace of a subagent."""


async def branched(journal: Checkpointer) -> tuple[list[str], list[str]]:
    """Make a branch of four steps, and one from its second step with two more and the head."""
    old = await grow(journal, "a", "b", "c", "d")
    fork = step_batch(old[1], "c'", source="fork", salt="branch")
    await journal.commit(fork)
    new = [fork.checkpoints[0].id]
    await journal.commit(step_batch(new[0], "d'"))
    return old, [*new, step_id(new[0])]
