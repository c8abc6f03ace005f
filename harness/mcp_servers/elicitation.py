"""Elicitation: a server's questions to a person, as durable interrupts of the call they belong to.

A call that waits for an answer is stopped at the server and repeated from its start once the answer
exists; earlier answers are returned when the server asks again. So a tool that acts before it asks
acts twice. In protocol 2026-07-28, the question contains the server's sealed state, and the call
continues from there instead. That state is in memory: after a restart of this process, or once the
server refuses it as expired, the call also starts from its beginning.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypeAlias, TypedDict, cast
from urllib.parse import quote

import anyio
from pydantic import JsonValue

from .._internal.records import record
from ..errors import ToolError
from ..loop.run.interrupts import Interrupted
from ..tools.tool import InterruptFn
from .event_loop_thread import Inbox

__all__ = [
    "Answer",
    "Asked",
    "CallChannel",
    "CallEvent",
    "Elicitation",
    "Floor",
    "Memory",
    "NotSent",
    "Progress",
    "Question",
    "Restarted",
    "Round",
    "Unavailable",
]


_IN_ADDRESSES = "%:/?#[]@!$&'()*+,;="
"""Characters of addresses besides letters, digits and `-._~` (RFC 3986)."""

_MOVING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor, or change the order of others."""


class Answer(TypedDict):
    """A person's answer: `accept` with the form's content, `decline` or `cancel`."""

    action: Literal["accept", "decline", "cancel"]
    content: NotRequired[dict[str, JsonValue]]


@record
class Question:
    """One question of a server.

    Attributes:
        message: The server's text for the person.
        form: JSON schema of the form; None if the person should visit `url` instead.
        url: The address to visit.
    """

    message: str
    form: Mapping[str, JsonValue] | None = None
    url: str | None = None

    def text(self, server: str) -> str:
        """Return what the person reads: who asks, and the whole address, before the server's text.

        Other characters than those of addresses are percent-encoded, as a browser does it, so that
        the address cannot look like another one, for example with letters of another script.
        """
        said = _MOVING.sub("\ufffd", self.message)
        if self.url is None:
            return f"MCP server {server!r} asks: {said}"
        address = quote(self.url, safe=_IN_ADDRESSES, errors="replace")
        return f"MCP server {server!r} asks you to open {address} in a browser. It says: {said}"

    def answer_schema(self) -> dict[str, JsonValue]:
        """Return the schema of an `Answer`."""
        properties: dict[str, JsonValue] = {
            "action": {
                "type": "string",
                "enum": ["accept", "decline", "cancel"],
                "description": "accept: give `content`, or agree to visit the URL. decline: refuse."
                " cancel: neither.",
            }
        }
        schema: dict[str, JsonValue] = {
            "type": "object",
            "properties": properties,
            "required": ["action"],
            "additionalProperties": False,
        }
        if self.form is not None:
            properties["content"] = dict(self.form)
            schema["if"] = {"properties": {"action": {"const": "accept"}}}
            schema["then"] = {"required": ["content"]}
        return schema


@record
class Round:
    """Questions that a server asks at once.

    Attributes:
        questions: The questions.
        keys: The server's names for them, in protocol 2026-07-28.
        state: Its sealed state, which is sent back with the answers.
    """

    questions: tuple[Question, ...]
    keys: tuple[str, ...] = ()
    state: str | None = None


@dataclass(slots=True)
class Memory:
    """Answers to a call's questions, stored while it waits.

    Attributes:
        asked: All questions so far.
        sealed: The round from which the server can continue, if it can.
        before: How many questions were asked before that round.
    """

    asked: list[Question] = field(default_factory=list[Question])
    sealed: Round | None = None
    before: int = 0


class Elicitation:
    """Puts the questions of one attempt at a call to the person, in the calling task.

    Args:
        interrupt: Asks on behalf of the call.
        server: The server's name.
        tool: The tool, as the server calls it.
        memory: Questions and state of earlier attempts; updated.
    """

    def __init__(self, interrupt: InterruptFn, server: str, tool: str, memory: Memory) -> None:
        self._interrupt = interrupt
        self._server = server
        self._tool = tool
        self._memory = memory
        self._given: list[Answer] = []
        self._place = 0

    def resume(self) -> Round | None:
        """Return the round to continue from, with the answers before it taken again."""
        memory = self._memory
        if memory.sealed is not None:
            for question in memory.asked[: memory.before]:
                self._take(question)
        return memory.sealed

    def restart(self) -> None:
        """Start again with the first question: the call is repeated from its start."""
        self._place = 0
        self._memory.sealed = None

    def answers(self, asked: Round) -> Sequence[Answer]:
        """Return the answers to a round.

        Raises:
            Interrupted: Some are missing; it contains all open questions of the round.
            ToolError: The server asks a different question from the answered one.
        """
        if asked.keys:
            self._memory.sealed, self._memory.before = asked, self._place
        answers: list[Answer] = []
        waiting: list[Interrupted] = []
        for question in asked.questions:
            try:
                answers.append(self._take(question))
            except Interrupted as pause:
                waiting.append(pause)
        if waiting:
            raise Interrupted([one for pause in waiting for one in pause.interrupts])
        return answers

    def _take(self, question: Question) -> Answer:
        place, asked = self._place, self._memory.asked
        self._place += 1
        if place == len(asked):
            asked.append(question)
        elif asked[place] != question:
            raise ToolError(
                "the server now asks something else than what a person has answered, so the "
                f"answer was not used and the call was stopped. It asks: {question.message!r}. "
                "Call the tool again to have it asked."
            )
        if place < len(self._given):
            return self._given[place]
        payload: dict[str, JsonValue] = {"server": self._server, "tool": self._tool}
        if question.url is not None:
            payload["url"] = question.url
        text, schema = question.text(self._server), question.answer_schema()
        answer = cast(Answer, self._interrupt(text, answer_schema=schema, payload=payload))
        self._given.append(answer)
        return answer


Answers: TypeAlias = Sequence[Answer]


class Unavailable(Exception):
    """The server cannot be used now; the text says why."""


class NotSent(Exception):
    """A request did not reach the server, so it can be sent again.

    Attributes:
        reopen: Whether the session is no longer usable.
    """

    def __init__(self, why: str, *, reopen: bool = False) -> None:
        super().__init__(why)
        self.reopen = reopen


@record
class Asked:
    """The server asks. Call `reply` with the answers, from any thread."""

    round: Round
    reply: Callable[[Answers | None], None]


@record
class Progress:
    """The server reports progress."""

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
        began: Whether its turn has started; before that, nothing was sent.
        failure: Why the connection ended it, if it did.
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
        """Report that the server will ask from the beginning."""
        self._send(Restarted())

    def fail(self, why: str) -> None:
        """End the call."""
        self.failure = why
        self.scope.cancel()

    def hang_up(self) -> None:
        """Stop waiting for answers to open questions."""
        for inbox in self._open:
            inbox.put(None)


class Floor:
    """Finds the call of a question, on connections before protocol 2026-07-28.

    There, a question does not contain its call, and the wrong one would show one user's question to
    another. So a question waits until a single call is left, and after a server's first question,
    its calls take turns. If every call waits for an answer, it is unknown which one asked: all of
    them end with an error result, and the next attempts take turns.
    """

    def __init__(self) -> None:
        self._calls: list[CallChannel] = []
        self._held = 0
        self._asks = False
        self._changed = anyio.Event()

    @asynccontextmanager
    async def turn(self, line: CallChannel) -> AsyncGenerator[None]:
        """Run a call in parallel with others, or alone if the server asks questions."""
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
        """Return the asking call, once that is certain; None if there is no call."""
        self._asks = True
        self._held += 1
        self._change()
        try:
            while len(self._calls) > 1:
                if self._held >= len(self._calls):
                    for line in self._calls:
                        line.fail(
                            "the server asked a question while several of its tools were running, "
                            "and there is no way to know which of them asks. All were stopped; "
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
