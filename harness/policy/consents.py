"""Consents: decisions of a person that let later calls through, too, which the policy asks about.

They stand in place of a person's answer and nothing else: what the policy denies stays denied, and
what it wants decided each time is asked.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..messages.message import ToolCall
    from ..tools.tool import Tool

__all__ = ["CallPlace", "Consents", "consenting", "consents_of_run"]


class CallPlace(Protocol):
    """Where a call is made."""

    @property
    def thread_id(self) -> str:
        """The thread."""
        ...

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def agent_path(self) -> Sequence[str]:
        """Agent and call names from the root to the call."""
        ...


class Consents(Protocol):
    """What a person has decided for calls that are yet to come."""

    async def cover(self, call: ToolCall, tool: Tool, place: CallPlace) -> bool:
        """Whether a call that a person would be asked about was approved beforehand."""
        ...


_OF_RUN: ContextVar[Consents | None] = ContextVar("consents", default=None)


def consents_of_run() -> Consents | None:
    """Return the consents that hold for the run being carried; None if nobody keeps any."""
    return _OF_RUN.get()


@contextmanager
def consenting(consents: Consents | None) -> Generator[None]:
    """Let consents hold for the runs that are carried inside the block."""
    token = _OF_RUN.set(consents)
    try:
        yield
    finally:
        _OF_RUN.reset(token)
