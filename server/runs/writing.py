"""Writing: the answers that models of a run are writing now, as far as they have come."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ...harness._internal.records import record
from ...harness.loop.run.events import Event

__all__ = ["Writing", "Written"]

MOST_CHARS = 100_000
"""Of one answer that are kept while it is written; the whole one comes with its step."""

ANNOUNCE_SECONDS = 0.2
"""How often watchers are notified that there is more."""


@record
class Written:
    """The beginning of an answer.

    Attributes:
        path: Agent and call names from the root to the agent that writes.
        text: What it says so far.
        thinking: What it has thought so far.
        since: Unix time at which it began.
    """

    path: tuple[str, ...]
    text: str
    thinking: str
    since: float


@dataclass(slots=True)
class _Begun:
    since: float
    text: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    size: int = 0


class Writing:
    """Collects the pieces of answers by agent; those of an answer that is stored are dropped."""

    __slots__ = ("_announced", "_begun")

    def __init__(self) -> None:
        self._begun: dict[tuple[str, ...], _Begun] = {}
        self._announced = 0.0

    def take(self, event: Event) -> bool:
        """Take in a piece; return whether it is time to tell those who look."""
        kind, text = event.data.get("kind"), event.data.get("text")
        if kind == "dropped":
            self._begun.pop(event.path, None)
            return True
        if kind not in ("text", "thinking") or not isinstance(text, str) or not text:
            return False
        begun = self._begun.get(event.path)
        if begun is None:
            begun = self._begun[event.path] = _Begun(time.time())
        if begun.size < MOST_CHARS:
            begun.size += len(text)
            (begun.text if kind == "text" else begun.thinking).append(text)
        now = time.monotonic()
        if now < self._announced + ANNOUNCE_SECONDS:
            return False
        self._announced = now
        return True

    def end_of(self, path: tuple[str, ...], chars: int) -> str:
        """Return the end of what an agent writes now, on one line, beginning with a whole word."""
        begun = self._begun.get(path)
        pieces, size = list[str](), 0
        for piece in reversed(begun.text if begun is not None else ()):
            pieces.append(piece)
            size += len(piece)
            if size > chars:
                break
        text = " ".join("".join(reversed(pieces)).split())
        return text if len(text) <= chars else text[-chars:].partition(" ")[2] or text[-chars:]

    def end(self, path: tuple[str, ...]) -> None:
        """Drop the answer of an agent: its step is stored, or the next one begins."""
        self._begun.pop(path, None)

    def now(self) -> list[Written]:
        """Return what is written now, in the order in which it began."""
        return [
            Written(path, "".join(one.text), "".join(one.thinking), one.since)
            for path, one in self._begun.items()
        ]
