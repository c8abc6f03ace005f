"""Time limits that grow for slow machines, and ports that stay free."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import cache
from itertools import count

__all__ = ["free_port", "growing"]


def growing(first: float, most: float = 30.0) -> Iterator[float]:
    """Yield time limits in seconds, each four times as long as the one before it.

    Use it for tests that must reach a point before a limit: if the machine was too slow for one
    limit, try again with the next.
    """
    while first < most:
        yield first
        first *= 4
    yield most


def free_port() -> int:
    """Return a free port below the range from which systems assign ports.

    No other server or client of a test gets such a port. So it is still free when a server starts
    on it, or restarts.
    """
    for number in _numbers(os.getpid()):
        port = 10_000 + number % 20_000
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the count has no end")


@cache
def _numbers(pid: int) -> Iterator[int]:
    """Return the order in which a process tries ports; it differs between processes."""
    return count(pid * 1_009 % 20_000)
