"""Session signals: what sessions need from other replicas, such as waking them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from mcp.types import JSONRPCRequest

__all__ = ["NoCalls", "Peers", "Repeats", "SessionSignals"]

SessionSignal: TypeAlias = Literal["session", "stream", "message"]
"""`session`: it ended, or what is known of it changed. `stream`: one of its streams has more.
`message`: a message waits for a replica."""


class SessionSignals(Protocol):
    """Wakes the other replicas. A signal can be lost, so whoever waits also looks by itself."""

    def on(self, kind: SessionSignal, handler: Callable[[str, str], None]) -> None:
        """Have a function called with the id and the rest of each signal of a kind."""
        ...

    def tell(self, kind: SessionSignal, id_: str, more: str = "") -> None:
        """Send a signal soon; the sender does not hear it."""
        ...


class Peers(Protocol):
    """The replicas."""

    @property
    def owner(self) -> str:
        """Our own id, which no other process ever has."""
        ...

    async def others(self) -> Sequence[str]:
        """Return the ids of the other replicas that live, those that have just begun too.

        Raises:
            CheckpointError: The database cannot be read.
        """
        ...

    async def is_alive(self, owner: str) -> bool:
        """Whether a replica lives; yes as long as nobody can tell."""
        ...


class Repeats(Protocol):
    """Knows which requests may be served again."""

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return a request as it is served, with what lets it be repeated."""
        ...

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether serving it a second time does nothing more than the first."""
        ...


class NoCalls:
    """Lets everything be repeated except calls of tools: all else reads, or sets what it names."""

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return it as it is."""
        return request

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether it calls no tool."""
        return request.method != "tools/call"
