"""Call channel: the worker's end of a call, and the way a question finds its call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio

from .._internal.records import record
from .elicitation import Answer, Round
from .event_loop_thread import Inbox

__all__ = [
    "Asked",
    "CallChannel",
    "CallEvent",
    "Floor",
    "NotSent",
    "Progress",
    "Restarted",
    "Unavailable",
]

Answers: TypeAlias = Sequence[Answer]


class Unavailable(Exception):
    """The server cannot be used now; the text says why."""


class NotSent(Exception):
    """A request did not reach the server, so it can be sent again.

    Attributes:
        reopen: The session is of no use any more.
    """

    def __init__(self, why: str, *, reopen: bool = False) -> None:
        super().__init__(why)
        self.reopen = reopen


@record
class Asked:
    """The server asks. `reply` takes the answers, from any thread."""

    round: Round
    reply: Callable[[Answers | None], None]


@record
class Progress:
    """The server reports how far it is."""

    progress: float
    total: float | None
    message: str | None


@record
class Restarted:
    """The call is made from its start again."""


CallEvent: TypeAlias = Asked | Progress | Restarted


class CallChannel:
    """A call, as the connection sees it.

    Attributes:
        scope: Ends the call.
        began: Whether its turn has come; before that nothing was sent.
        failure: Why it was ended, if the connection did it.
    """

    def __init__(self, send: Callable[[CallEvent], None]) -> None:
        self.scope = anyio.CancelScope()
        self.began = False
        self.failure = ""
        self._send = send
        self._open: set[Inbox[Answers | None]] = set()

    async def ask(self, asked: Round) -> Answers | None:
        """Return the answers, or None once the call is over."""
        inbox: Inbox[Answers | None] = Inbox()
        self._open.add(inbox)
        self._send(Asked(asked, inbox.put))
        try:
            return await inbox.get()
        finally:
            self._open.discard(inbox)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on how far the server is."""
        self._send(Progress(progress, total, message))

    def restart(self) -> None:
        """Say that the server will ask from the beginning."""
        self._send(Restarted())

    def fail(self, why: str) -> None:
        """End the call."""
        self.failure = why
        self.scope.cancel()

    def hang_up(self) -> None:
        """Leave the questions that are still open without an answer."""
        for inbox in self._open:
            inbox.put(None)


class Floor:
    """Says which call a question belongs to, on connections before protocol 2026-07-28.

    There a question does not name its call, and giving it to the wrong one would show one user's
    question to another. So it waits until a single call is left, and from a server's first
    question on its calls take turns. When every call waits for an answer, none can be told from
    the others: all of them end with an error result, and the next attempts take turns.
    """

    def __init__(self) -> None:
        self._calls: list[CallChannel] = []
        self._held = 0
        self._asks = False
        self._changed = anyio.Event()

    @asynccontextmanager
    async def turn(self, line: CallChannel) -> AsyncGenerator[None]:
        """Let a call run beside others, or alone if the server is one that asks."""
        while self._asks and self._calls:
            await self._changed.wait()
        self._calls.append(line)
        line.began = True
        try:
            yield
        finally:
            self._calls.remove(line)
            self._change()

    async def asking(self) -> CallChannel | None:
        """Return the call that asks, once that is certain; None if there is no call."""
        self._asks = True
        self._held += 1
        self._change()
        try:
            while len(self._calls) > 1:
                if self._held >= len(self._calls):
                    for line in self._calls:
                        line.fail(
                            "the server asked a question while several of its tools were running, "
                            "and it cannot be told which of them asks. They were all stopped; "
                            "whether they acted is unknown. From now on its calls take turns: "
                            "check, then call again."
                        )
                await self._changed.wait()
            line = self._calls[0] if self._calls else None
            return None if line is None or line.failure else line
        finally:
            self._held -= 1

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
