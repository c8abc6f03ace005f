"""Redaction of runs: applies the rules of a run's agents to incoming and outgoing texts.

State, events, questions and records contain only redacted texts: input, answers, tool results and
data from the journal are redacted before they become part of the state, and everything else is made
from the state. So each text is checked once, when it is new.

The rules of an agent also apply to its subagents, in addition to their own.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import JsonValue
from pydantic_core import from_json

from ..._internal.records import changed
from ...checkpoint.base import Batch, Interrupt, StoredWrite
from ...errors import AgentBuildError, CheckpointError, InvalidUpdate
from ...messages.message import AIMessage, HumanMessage, ToolMessage
from ...redaction.rules import Keys, PIIDetectionError, Place, Redactor, Rule
from ...redaction.streams import DeltaStream
from ...redaction.values import clean_json, clean_json_bytes, clean_message
from ...state.channels import ChannelWrite, Mark, Overwrite, State
from ...state.schema import StateSchema
from ..hooks.requests import ModelResponse, ToolCallOutcome
from .redacted_changes import clean_change

if TYPE_CHECKING:
    from ...store.base import Store
    from ..hooks.middleware import AgentMiddleware
    from .commit_buffer import CommitBuffer

__all__ = [
    "SALT",
    "RedactedJournal",
    "RunRedaction",
    "asked",
    "current_redaction",
    "redaction_at",
    "rules_of",
    "working_in",
]

ErrorT = TypeVar("ErrorT", bound=BaseException | None)
MessageT = TypeVar("MessageT", bound=object)

SALT = "pii_salt"
"""The private state key with the secret of a thread's hashes and tokens."""

_COUNTED = frozenset({"files", "rubric_evaluations"})
"""Public state keys of the harness with numbers of its own, such as the times of files."""

_TOKEN = re.compile(r"<[a-z0-9_]+_ref:[a-p]{16}>")

_PLACES: Mapping[type, Place] = {HumanMessage: "input", AIMessage: "output", ToolMessage: "tools"}

_CURRENT: ContextVar[RunRedaction | None] = ContextVar("screen", default=None)


class RunRedaction:
    """The rules of one agent in one run.

    Args:
        rules: The rules; not empty.
        keys: The keys of the thread, shared by all agents of the run.
    """

    def __init__(self, rules: Sequence[Rule], keys: Keys) -> None:
        self.rules = tuple(rules)
        self.keys = keys
        self._keyed = any(rule.needs_key for rule in rules)
        self._redactors: dict[tuple[frozenset[Place], bool], Redactor | None] = {}
        self._newest: ToolMessage | None = None
        # A call comes from a model, but contains values that only its tool may see.
        shown = [one for one in rules if "output" in one.places or one.reveal_to]
        self._approvals = Redactor(shown, keys, lenient=True) if shown else None

    def at(self, *places: Place, lenient: bool = False) -> Redactor | None:
        """Return a function that redacts texts of these places, by default all, or None."""
        key = frozenset(places), lenient
        if key not in self._redactors:
            rules = [one for one in self.rules if not places or one.places & key[0]]
            made = Redactor(rules, self.keys, lenient=lenient) if rules else None
            self._redactors[key] = made
        return self._redactors[key]

    def text(self, text: str, *places: Place) -> str:
        """Return a redacted text."""
        redactor = self.at(*places)
        return redactor(text) if redactor else text

    def json(self, value: JsonValue, *places: Place) -> JsonValue:
        """Return redacted JSON data."""
        redactor = self.at(*places)
        return clean_json(value, redactor) if redactor else value

    def message(
        self, message: MessageT, place: Place | None = None, *, lenient: bool = False
    ) -> MessageT:
        """Return a redacted message; a caller's messages count as input, whatever their role."""
        kind = _PLACES.get(type(message))
        if kind is None:
            return message
        places: tuple[Place, ...] = (kind, "input") if place == "input" else (kind,)
        redactor = self.at(*places, lenient=lenient)
        return clean_message(message, redactor) if redactor else message

    def writes(
        self,
        schema: StateSchema,
        writes: Sequence[ChannelWrite],
        place: Place | None = None,
        *,
        lenient: bool = False,
    ) -> list[ChannelWrite]:
        """Return redacted writes.

        Raises:
            InvalidUpdate: A redacted value does not match its key's type.
            PIIDetectionError: A rule blocks a write.
        """
        return [self._write(schema, one, place, lenient) for one in writes]

    def _write(
        self, schema: StateSchema, write: ChannelWrite, place: Place | None, lenient: bool
    ) -> ChannelWrite:
        name, value = write
        if name == "messages":
            return ChannelWrite(name, self._messages(value, place, lenient))
        channel = schema[name]
        redactor = self.at(*((place,) if place else ()), lenient=lenient)
        kept_as_is = name == SALT or Mark.CONTROL in channel.marks
        if redactor is None or not channel.stored or kept_as_is:
            return write
        data = channel.encode(value)
        # The harness and hooks count and compare with the numbers of their own state.
        ours = Mark.PRIVATE in channel.marks or name in _COUNTED
        # A number that was stored before there were rules stays if its type needs one.
        for numbers in (not ours, False) if lenient else (not ours,):
            cleaned = clean_json_bytes(data, redactor, numbers=numbers)
            if cleaned is data:
                return write
            with suppress(CheckpointError):
                kept = channel.decode(cleaned, overwrite=isinstance(value, Overwrite))
                return ChannelWrite(name, kept)
        raise InvalidUpdate(
            f"what redaction leaves of {name!r} does not fit its type; nothing was stored. "
            "Type it as text, or leave out what is redacted"
        )

    def _messages(self, value: Any, place: Place | None, lenient: bool) -> Any:
        if isinstance(value, Overwrite):
            return Overwrite(self._messages(value.value, place, lenient))
        return [self.message(one, place, lenient=lenient) for one in value]

    def response(self, response: ModelResponse) -> ModelResponse:
        """Return a model's response with redacted messages."""
        message = self.message(response.message)
        following = tuple(self.message(one) for one in response.following)
        if message is response.message and following == response.following:
            return response
        return changed(response, message=message, following=following)

    def deltas(self) -> DeltaStream | None:
        """Return a filter for the pieces of an answer; None if they need none."""
        redactor = self.at("output")
        return DeltaStream(redactor) if redactor else None

    def outcome(self, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Return a tool's outcome with a redacted result.

        If a rule blocks the result, the call gets an error instead: it has run, and ending the run
        here would make it run again.
        """
        message = outcome.message
        if message is self._newest:
            return outcome
        try:
            cleaned = self.message(message)
        except PIIDetectionError as error:
            cleaned = changed(
                message,
                content=f"{message.name} ran, and its result was withheld: it holds what may not "
                f"pass ({error.pii_type}). What it changed stays.",
                artifact=None,
                status="error",
            )
        self._newest = cleaned
        return outcome if cleaned is message else changed(outcome, message=cleaned)

    def question(self, interrupt: Interrupt) -> Interrupt:
        """Return a redacted question."""
        if interrupt.kind == "approval":
            redactor = self._approvals
        else:
            redactor = self.at(*(("tools",) if interrupt.index >= 0 else ()), lenient=True)
        if redactor is None:
            return interrupt
        return replace(
            interrupt,
            message=redactor(interrupt.message),
            payload=cast(
                "dict[str, JsonValue]",
                clean_json(interrupt.payload, redactor, numbers=interrupt.is_question),
            ),
            answer_schema=cast(
                "dict[str, JsonValue]",
                clean_json(interrupt.answer_schema, redactor, numbers=False),
            ),
        )

    def error(self, error: ErrorT) -> ErrorT:
        """Return an error with a redacted text; if its text changed, also without its causes."""
        redactor = self.at(lenient=True)
        if error is None or redactor is None or redactor(str(error)) == str(error):
            return error
        error.args = tuple(
            redactor(one) if isinstance(one, str) else one for one in cast(Any, error).args
        )
        error.__cause__ = error.__context__ = None
        return error

    async def revealed(self, args: dict[str, JsonValue], tool: str) -> dict[str, JsonValue]:
        """Return arguments in which the tokens that a tool may see are replaced by their values.

        Raises:
            StoreError: The values cannot be read.
        """
        tokens: set[str] = set()

        def note(text: str) -> str:
            tokens.update(one[0] for one in _TOKEN.finditer(text))
            return text

        clean_json(args, note)
        values: dict[str, str] = {}
        for rule in self.rules:
            if tool in rule.reveal_to and rule.vault is not None:
                wanted = [one for one in tokens if one.startswith(f"<{rule.pii_type}_ref:")]
                made = self.keys.made.get(rule.vault, {})
                if wanted:
                    found = await rule.vault.find(self.keys.scope, wanted)
                    values |= {**found, **{one: made[one] for one in wanted if one in made}}
        if not values:
            return args
        revealed = clean_json(
            args, lambda text: _TOKEN.sub(lambda one: values.get(one[0], one[0]), text)
        )
        return cast("dict[str, JsonValue]", revealed)

    def store(self, store: Store | None, *places: Place) -> Store | None:
        """Return the agent's store, which redacts values before it stores them."""
        redactor = self.at(*places)
        if store is None or redactor is None:
            return store
        from ...redaction.streams import ScreenedStore

        return cast("Store", ScreenedStore(store, redactor, self.keys))

    def recall(self, state: State, writes: Sequence[StoredWrite]) -> None:
        """Take the thread's secret from its state, or from the part that was read."""
        salt = state.get(SALT)
        for one in writes:
            if one.channel == SALT:
                salt = from_json(one.value)
        self.keys.recall(salt)

    def secret(self, schema: StateSchema, state: State) -> list[ChannelWrite]:
        """Return the write that stores the thread's secret, if it is not stored yet."""
        if not self._keyed or SALT not in schema.channels or state.get(SALT) is not None:
            return []
        return [ChannelWrite(SALT, self.keys.salt)]


class RedactedJournal:
    """A run's journal that redacts questions and the old contents of files.

    Everything else is already redacted. Data with a token is stored after the token.
    """

    def __init__(
        self, journal: CommitBuffer, keys: Keys, screens: Mapping[tuple[str, ...], RunRedaction]
    ) -> None:
        self._journal = journal
        self._keys = keys
        self._screens = screens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, batch: Batch) -> None:
        """Store a batch; see `CommitBuffer.commit`."""
        await self._keys.store()
        await self._journal.commit(self._clean(batch))

    async def step(self, batch: Batch) -> None:
        """Store a step; see `CommitBuffer.step`."""
        await self._keys.store()
        await self._journal.step(self._clean(batch))

    def _clean(self, batch: Batch) -> Batch:
        if not batch.interrupts and not batch.file_changes:
            return batch
        screens = self._screens
        questions = [asked(one, screens) for one in batch.interrupts]
        main = next((one for path, one in screens.items() if len(path) == 1), None)
        screen = current_redaction() or main  # None for an agent without rules
        redactor = None if screen is None else screen.at("tools", lenient=True)
        changes = [clean_change(one, redactor) for one in batch.file_changes]
        return changed(batch, interrupts=questions, file_changes=changes)


def redaction_at(
    path: tuple[str, ...], screens: Mapping[tuple[str, ...], RunRedaction]
) -> RunRedaction | None:
    """Return the redaction for a path: that of the nearest agent above it."""
    places = (path[:end] for end in range(len(path), 0, -1))
    return next((screens[one] for one in places if one in screens), None)


def asked(interrupt: Interrupt, screens: Mapping[tuple[str, ...], RunRedaction]) -> Interrupt:
    """Return a redacted question."""
    screen = redaction_at(interrupt.path, screens)
    return screen.question(interrupt) if screen is not None else interrupt


def rules_of(middleware: Sequence[AgentMiddleware], store: Store | None) -> tuple[Rule, ...]:
    """Return the rules of an agent's middleware, in order.

    Raises:
        AgentBuildError: Tokens need a place for their values, and there is none.
    """
    rules: list[Rule] = []
    for one in middleware:
        for rule in one.redaction:
            if rule.strategy == "tokenize" and rule.vault is None:
                if store is None:
                    raise AgentBuildError(
                        f"{one.name} makes tokens, whose values need a place: give the agent a "
                        "store=, or the middleware a vault="
                    )
                from ...redaction.values import StoreVault

                rule = replace(rule, vault=StoreVault(store))
            rules.append(rule)
    return tuple(rules)


def current_redaction() -> RunRedaction | None:
    """Return the redaction of the current tool call."""
    return _CURRENT.get()


@contextmanager
def working_in(screen: RunRedaction | None) -> Generator[None]:
    """Let `current_redaction` return this one."""
    if screen is None:
        yield
        return
    token = _CURRENT.set(screen)
    try:
        yield
    finally:
        _CURRENT.reset(token)
