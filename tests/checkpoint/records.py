"""Shorthands to create and read data of a journal; most come from the conformance kit."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.base import Checkpointer, step_id
from deep_agent_mcp.harness.checkpoint.conformance.kit import (
    THREAD,
    checkpoint,
    grow,
    interrupt,
    loaded,
    run,
    step_batch,
    task,
    values,
)
from deep_agent_mcp.harness.checkpoint.transfer import export_thread
from tests.loop.models import Turns, says

__all__ = [
    "THREAD",
    "checkpoint",
    "grow",
    "interrupt",
    "loaded",
    "loads",
    "reads",
    "run",
    "step_batch",
    "task",
    "values",
]


def loads(journal: Checkpointer) -> list[Callable[[], Awaitable[Any]]]:
    """Return functions that load a thread of two steps, with all pairs of arguments."""
    first, second = step_id(None), step_id(step_id(None))
    return [
        partial(journal.load, THREAD, "", place, schema=schema, cached=cached)
        for place, schema, cached in (
            (None, None, None),
            (None, "s", first),
            (first, None, first),
            (first, "s", None),
            (second, None, None),
            (second, "s", first),
        )
    ]


def reads(journal: Checkpointer) -> list[Callable[[], Awaitable[Any]]]:
    """Return functions for all reads of a thread and its run."""

    async def export() -> None:
        async for _ in export_thread(journal, THREAD):
            pass

    agent = create_agent(Turns(says("done")), [], checkpointer=journal)
    return [
        *loads(journal),
        partial(journal.history, THREAD),
        partial(journal.namespaces, THREAD),
        journal.threads,
        partial(journal.run, "run_1"),
        journal.find_runs,
        partial(journal.interrupts, "run_1"),
        partial(journal.file_changes, THREAD, 0),
        partial(journal.events, "run_1"),
        partial(journal.thread_size, THREAD),
        partial(agent.get_state, THREAD),
        export,
    ]
