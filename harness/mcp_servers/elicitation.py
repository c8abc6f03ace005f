"""Elicitation: a server's questions to a person, as durable interrupts of the call they belong to.

A call that waits for an answer is stopped at the server and made again, from its start, once the
answer is there; earlier answers are returned as the server asks for them again. So a tool that acts
before it asks acts twice. In protocol 2026-07-28 the server seals its state into the question, and
the call goes on from there instead. That state is kept in memory: after a restart of this process,
or once the server refuses it as expired, such a call also begins at its start.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypeAlias, TypedDict, cast

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


class Answer(TypedDict):
    """A person's answer: `accept` with the form's content, `decline` or `cancel`."""

    action: Literal["accept", "decline", "cancel"]
    content: NotRequired[dict[str, JsonValue]]


@record
class Question:
    """One question of a server.

    Attributes:
        message: What the person reads.
        form: JSON schema of what they fill in; None when they are to visit `url` instead.
        url: Where they are sent.
    """

    message: str
    form: Mapping[str, JsonValue] | None = None
    url: str | None = None

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
        state: Its sealed state, to be sent back with the answers.
    """

    questions: tuple[Question, ...]
    keys: tuple[str, ...] = ()
    state: str | None = None


@dataclass(slots=True)
class Memory:
    """Answers to a call's questions, kept while it waits.

    Attributes:
        asked: All questions so far.
        sealed: The round from which the server can go on, if it can.
        before: How many questions were asked before that round.
    """

    asked: list[Question] = field(default_factory=list[Question])
    sealed: Round | None = None
    before: int = 0


class Elicitation:
    """Puts the questions of one attempt at a call to the person, in the calling task.

    Args:
        interrupt: The call's own way to ask.
        payload: Facts that go with every question.
        memory: What earlier attempts left; updated.
    """

    def __init__(
        self, interrupt: InterruptFn, payload: Mapping[str, JsonValue], memory: Memory
    ) -> None:
        self._interrupt = interrupt
        self._payload = payload
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
        """Begin at the first question again: the call is made from its start."""
        self._place = 0
        self._memory.sealed = None

    def answers(self, asked: Round) -> Sequence[Answer]:
        """Return the answers to a round.

        Raises:
            Interrupted: Some are not there yet; it carries all open questions of the round.
            ToolError: The server asks something else than what was answered.
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
        payload = dict(self._payload)
        if question.url is not None:
            payload["url"] = question.url
        answer = cast(
            Answer,
            self._interrupt(
                question.message, answer_schema=question.answer_schema(), payload=payload
            ),
        )
        self._given.append(answer)
        return answer


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
    question on its calls take turns. When every call waits for an answer, nobody knows which one
    asked: all of them end with an error result, and the next attempts take turns.
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
