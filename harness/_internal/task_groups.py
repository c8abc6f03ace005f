"""Errors of task groups: what one task raises, without the groups around it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["leaves", "raising_one"]


@asynccontextmanager
async def raising_one() -> AsyncGenerator[None, None]:
    """Raise the error itself where a task group of one task raises a group."""
    try:
        yield
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) != 1:
            raise
        raise errors.exceptions[0] from None


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors inside a group, whatever groups wrap them."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]  # pyright: ignore[reportUnknownArgumentType]
    return found
