"""Task groups of one task: what it raises is raised as it is, without a group around it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["raising_one"]


@asynccontextmanager
async def raising_one() -> AsyncGenerator[None, None]:
    """Raise the error itself where a task group of one task raises a group."""
    try:
        yield
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) != 1:
            raise
        raise errors.exceptions[0] from None
