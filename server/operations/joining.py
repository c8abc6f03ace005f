"""Joining: makes a server one of several replicas, and turns on what it does by itself."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

from ..settings.settings import Settings

if TYPE_CHECKING:
    from .agenda import Agenda
    from .fleet import Fleet

__all__ = ["agenda_of", "fleet_of"]


def agenda_of(settings: Settings, *, acts: bool) -> AbstractAsyncContextManager[Agenda | None]:
    """Return what is entered to act by oneself; None without `--schedules` and `--webhook`.

    Args:
        settings: What the operator chose.
        acts: Whether this is a server, and not a command that has the same settings.
    """
    if not acts or not (settings.schedules or settings.webhooks):
        return nullcontext()
    from .agenda import joined_agenda  # few have one

    return joined_agenda(settings)


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
