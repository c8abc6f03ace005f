"""Cancellation: tells the end of a run from a `CancelledError` that a tool or hook raised itself.

Whoever awaits a task or future that somebody else cancelled gets that exception too. Nobody asked
the run to stop then: the tool or hook has failed like any other.
"""

from __future__ import annotations

import asyncio
import math

import anyio

__all__ = ["FAILURES", "StrayCancellation", "as_failure"]

FAILURES = (Exception, asyncio.CancelledError)
"""What can be a failure of code that is not ours; `as_failure` says whether it is."""


class StrayCancellation(Exception):
    """Code raised `CancelledError` although nothing around it was cancelled."""


def as_failure(error: Exception | asyncio.CancelledError) -> Exception:
    """Return the failure that an exception stands for.

    To be called in the task that caught it, in the scopes that surround the code that raised it.

    Raises:
        asyncio.CancelledError: It is a cancellation; the same object, as scopes know theirs by it.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, anyio.get_cancelled_exc_class()) and _being_cancelled():
        raise error
    failure = StrayCancellation(
        "CancelledError was raised in it although nothing cancelled the run; probably something "
        "that it waited for was cancelled"
    )
    failure.__cause__ = error
    return failure


def _being_cancelled() -> bool:
    """Say whether a scope around this task, or the task itself, is being cancelled.

    Scopes deliver with `Task.cancel` what they count themselves, so both have to be asked. A
    request that somebody swallowed without `Task.uncancel` stays counted: in doubt it is real.
    """
    if anyio.current_effective_deadline() == -math.inf:
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
