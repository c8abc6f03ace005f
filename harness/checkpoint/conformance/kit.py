"""The conformance kit's own tools: how laws are written and checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeAlias, cast

import anyio

from ..._internal.records import record
from ..base import Checkpointer

__all__ = ["Law", "Laws", "MakeJournal", "equal", "holds", "refused"]

MakeJournal: TypeAlias = Callable[[], AbstractAsyncContextManager[Checkpointer]]
"""Opens a new, empty journal; leaving the context closes it."""

_SECONDS = 60.0
"""How long one law may take before it counts as broken."""


@record
class Law:
    """One promise of a checkpointer.

    Attributes:
        group: What it is about, such as `forks`.
        name: The promise, in words.
        check: Raises when an empty journal does not keep it.
    """

    group: str
    name: str
    check: Callable[[Checkpointer], Awaitable[None]]

    async def verify(self, make: MakeJournal) -> None:
        """Check the law on a journal of its own.

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
        group: What they are about.
    """

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group

    def law(
        self, check: Callable[[Checkpointer], Awaitable[None]]
    ) -> Callable[[Checkpointer], Awaitable[None]]:
        """Add a function as a law; its name says what is promised."""
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
