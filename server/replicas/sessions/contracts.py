"""Contracts: what sessions need from the other replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from mcp.types import JSONRPCRequest

__all__ = ["Peers", "Repeats", "SessionSignals"]

SessionSignal: TypeAlias = Literal["session", "stream", "message"]
"""`session`: it ended or changed. `stream`: one of its streams has new events. `message`: a message
waits for a replica."""


class SessionSignals(Protocol):
    """Wakes the other replicas. A signal can be lost, so receivers also poll."""

    def on(self, kind: SessionSignal, handler: Callable[[str, str], None]) -> None:
        """Have a function called with the id and the rest of each signal of a kind."""
        ...

    def tell(self, kind: SessionSignal, id_: str, more: str = "") -> None:
        """Send a signal soon; the sender does not receive it."""
        ...


class Peers(Protocol):
    """The replicas."""

    @property
    def owner(self) -> str:
        """The id of this process, which is never reused."""
        ...

    async def others(self) -> Sequence[str]:
        """Return the ids of the other live replicas, including ones that have just started.

        Raises:
            CheckpointError: The database cannot be read.
        """
        ...

    async def is_alive(self, owner: str) -> bool:
        """Whether a replica is alive; True while that is unknown."""
        ...


class Repeats(Protocol):
    """Knows which requests may be served again."""

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return a request in the form to serve, with data that makes it repeatable."""
        ...

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether serving it a second time has no further effect."""
        ...
