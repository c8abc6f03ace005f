"""Open requests to clients: forms for people, and calls of their model.

Whoever waits for a person would keep a server that shall end alive for as long as they think.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

__all__ = ["OpenRequests"]


class OpenRequests:
    """Takes back what clients are asked when the server ends."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._closed = False

    @contextmanager
    def asking(self, seconds: float) -> Generator[anyio.CancelScope]:
        """Let the block wait for a client.

        The block is left once `seconds` are over, the yielded scope is cancelled, or the server
        ends; then it is left at its first wait.
        """
        scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._scopes.add(scope)
        try:
            with scope:
                if self._closed:
                    scope.cancel()
                yield scope
        finally:
            self._scopes.discard(scope)

    def close(self) -> None:
        """Take back what is open, while clients can still be told, and let nothing be asked."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()
