"""Short ways to make and read what a journal stores; most of them the kit's own."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

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

__all__ = [
    "THREAD",
    "checkpoint",
    "grow",
    "interrupt",
    "loaded",
    "loads",
    "run",
    "step_batch",
    "task",
    "values",
]


def loads(journal: Checkpointer) -> list[Callable[[], Awaitable[Any]]]:
    """Return ways to load a thread of two steps, with each pair of what may be asked for."""
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
