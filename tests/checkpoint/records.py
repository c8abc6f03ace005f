"""Short ways to make what a journal stores; the kit's own."""

from harness.checkpoint.conformance.records import (
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
    "run",
    "step_batch",
    "task",
    "values",
]
