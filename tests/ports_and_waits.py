"""Waits of tests that have to outlast something on any machine, and ports that stay free."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import cache
from itertools import count

__all__ = ["free_port", "growing"]


def growing(first: float, most: float = 30.0) -> Iterator[float]:
    """Yield limits in seconds, each four times the one before it.

    For what is to be reached before a limit ends it: where the machine was too slow for the first
    limit, a test tries again with the next.
    """
    while first < most:
        yield first
        first *= 4
    yield most


def free_port() -> int:
    """Return a port that nobody listens on, below those that systems give out by themselves.

    Whoever asks for any port, as all servers and clients of tests do, never gets it, so it is
    still free when a server starts on it, and when that starts again.
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
    """Return where this process looks for ports: processes that were forked look elsewhere."""
    return count(pid * 1_009 % 20_000)
