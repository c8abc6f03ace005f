"""Joining: a server is one of several only if its operator says so."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from ..settings.settings import Settings

if TYPE_CHECKING:
    from .fleet import Fleet

__all__ = ["fleet_of"]


def fleet_of(settings: Settings, owner: str) -> AbstractAsyncContextManager[Fleet | None]:
    """Return what is entered to be one of the replicas of a journal; None without `--replicas`.

    Args:
        settings: What the operator chose.
        owner: Our id, which no process has had before.

    Raises:
        HarnessError: As for `joined`, when it is entered.
    """
    if not settings.replicas:
        return nullcontext()
    from .fleet import joined  # psycopg takes time to import

    return joined(settings, owner)
