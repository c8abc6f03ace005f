"""Work apart: what may take long is done in a thread, what is quick at once.

A thread costs a tenth of a millisecond, and lets the event loop go on while it works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import anyio.to_thread

__all__ = ["work_apart"]

_T = TypeVar("_T")

_FEW: Final = 1 << 16


async def work_apart(work: Callable[[], _T], chars: int = 0, *, items: int = 0) -> _T:
    """Return what some work comes to; in a thread if it goes through much.

    Args:
        work: Does it; it may run beside the event loop.
        chars: How many characters or bytes it goes through.
        items: Through how many objects.
    """
    few = chars + 128 * items < _FEW
    return work() if few else await anyio.to_thread.run_sync(work)
