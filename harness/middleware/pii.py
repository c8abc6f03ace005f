"""PII redaction: redacts personal data and secrets in all input and output of an agent.

Each instance is a rule that applies to old and new messages, arguments and results of calls,
structured data, streams, events, questions, the run's record, values in the agent's store, logged
errors of tools, and to all of these in subagents. Redacted data is never stored. Data that was
stored earlier is shown redacted, and `redact_thread` removes it for good. Not covered are images,
documents and recordings, files themselves, and the keys of items in a store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict, TypeVar, cast, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from .._internal.records import changed
from ..checkpoint.base import (
    Checkpoint,
    Checkpointer,
    FileChange,
    Interrupt,
    Record,
    Run,
    RunEvent,
    StoredWrite,
)
from ..errors import AgentBuildError
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import ToolCallOutcome, ToolCallRequest, ToolHandler
from ..loop.run.redacted_changes import clean_change
from ..loop.run.redaction import SALT, RunRedaction, current_redaction, rules_of
from ..messages.message import MessageWrite
from ..redaction import Detector
from ..redaction.detectors import BUILTIN, last_four
from ..redaction.detectors.custom import CallableDetector, Finder, RegexDetector
from ..redaction.rules import Keys, PIIDetectionError, Place, Redactor, Rule, Strategy
from ..redaction.streams import TextStream
from ..redaction.values import Vault, clean_json, clean_json_bytes, numbers_again
from ..state.channels import Mark
from ..store.base import Store

__all__ = ["PIIDetectionError", "PIIMiddleware", "PIIState", "redact_thread"]


_NAME = re.compile(r"[a-z][a-z0-9_]*")
_STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


class PIIState(TypedDict):
    """State of the middleware: the redacted values."""

    pii_salt: Annotated[NotRequired[str], Mark.PRIVATE]
    """The secret for hashes and tokens of this thread."""


class PIIMiddleware(AgentMiddleware):
    """Finds one kind of personal data or secret and replaces it; one instance for each kind.

    All instances check the same text. If matches overlap, the longest decides, and the others are
    removed completely. Keys of JSON objects and numbers are checked too; a redacted number becomes
    text. Built-in detectors and `EngineDetector` only check integers of 13 or more digits. Numbers
    that the harness or a provider relies on are only checked in that way: those in private state,
    in the schemas of questions, and in blocks of a provider's own tools.

    With the strategy `block`, input is refused, and a model's answer fails the run; a tool's result
    is withheld from the model, because the tool has already run.

    Args:
        pii_type: What to find: `email`, `credit_card`, `ip`, `mac_address`, `url`, `phone`,
            `iban`, `api_key`, `private_key`; with a detector, any name of lower-case letters,
            digits and `_`.
        strategy: How to handle it: `block` raises `PIIDetectionError`; `redact` puts
            `[REDACTED_EMAIL]` in its place; `mask` keeps a part, for example the last four digits;
            `hash` puts `<email_hash:…>`, the same for the same value in a thread; `tokenize` puts
            `<email_ref:…>`, whose value is kept on the server.
        detector: Finds the data instead: a regular expression, a function that returns `(start,
            end)` pairs (or objects with `start` and `end`), or a `Detector`.
        apply_to_input: Check input of users and callers: messages, state, people's answers, and
            calls of a client that drives.
        apply_to_output: Check output of models: text, thinking, arguments of calls, structured
            answers.
        apply_to_tool_results: Check output of tools: results, artifacts, errors, state writes,
            items in the agent's store, events, questions, and the old contents of changed files. If
            an old content was redacted, the change of the file cannot be undone.
        salt: Makes hashes the same in all threads of a deployment; keep it secret. By default each
            thread has its own.
        reveal_to: For `tokenize`: tools that get the values of tokens in their arguments. Their
            results are always checked, even if `apply_to_tool_results` is off. Wrappers that are
            listed after this middleware see the values, too.
        vault: For `tokenize`: the store of the values; by default the agent's store.

    Raises:
        AgentBuildError: A name, strategy, detector or combination is not valid.
    """

    state_schema: ClassVar[type | None] = PIIState

    def __init__(
        self,
        pii_type: str,
        *,
        strategy: Strategy = "redact",
        detector: str | Finder | Detector | None = None,
        apply_to_input: bool = True,
        apply_to_output: bool = False,
        apply_to_tool_results: bool = False,
        salt: str | bytes | None = None,
        reveal_to: Sequence[str] = (),
        vault: Vault | None = None,
    ) -> None:
        _check(pii_type, strategy, salt, reveal_to, vault)
        flags: dict[Place, bool] = {
            "input": apply_to_input,
            "output": apply_to_output,
            "tools": apply_to_tool_results or bool(reveal_to),
        }
        if not any(flags.values()):
            raise AgentBuildError(
                f"PIIMiddleware({pii_type!r}) looks at nothing: set apply_to_input, "
                "apply_to_output or apply_to_tool_results"
            )
        found = _detector(pii_type, detector)
        self.pii_type = pii_type
        self._rule = Rule(
            pii_type=pii_type,
            detector=found,
            strategy=strategy,
            places=frozenset(place for place, wanted in flags.items() if wanted),
            mask=cast(Callable[[str], str], getattr(found, "mask", last_four)),
            salt=salt.encode() if isinstance(salt, str) else salt,
            vault=vault,
            reveal_to=frozenset(reveal_to),
        )
        self.redaction = (self._rule,)
        if reveal_to:
            self.wrap_tool_call = self._reveal

    @property
    def name(self) -> str:
        """`PIIMiddleware[type]`, as an agent may have one for each type."""
        return f"PIIMiddleware[{self.pii_type}]"

    async def redact(self, request: ToolCallRequest, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Redact a result by the rules of all instances, before it is evicted to a file."""
        screen = current_redaction() or RunRedaction(self.redaction, Keys())
        return screen.outcome(outcome)

    async def _reveal(self, request: ToolCallRequest, handler: ToolHandler) -> ToolCallOutcome:
        """Give a tool the values of the tokens that it may see."""
        screen = current_redaction()
        call = request.call
        if screen is None or call.name not in self._rule.reveal_to:
            return await handler(request)
        args = await screen.revealed(call.args, call.name)
        if args is not call.args:
            if request.tool is not None:
                args = numbers_again(args, call.args, request.tool.parameters)
            request = request.override(call=changed(call, args=args))
        return await handler(request)


def _detector(pii_type: str, detector: str | Finder | Detector | None) -> Detector:
    if detector is None:
        if pii_type not in BUILTIN:
            raise AgentBuildError(
                f"there is no detector of {pii_type!r}; give one as detector=, or look for one of "
                f"{', '.join(BUILTIN)}"
            )
        return BUILTIN[pii_type]
    given: Any = detector
    if isinstance(given, str):
        return RegexDetector(given)
    if isinstance(given, Detector) and not isinstance(given, type):
        return given
    if callable(given) and not isinstance(given, type):
        return CallableDetector(cast(Finder, given))
    raise AgentBuildError(
        "detector= takes a regular expression, a function of a text, or an object with find and "
        f"open_from; got {given!r}"
    )


def _check(
    pii_type: object,
    strategy: object,
    salt: object,
    reveal_to: object,
    vault: object,
) -> None:
    if not isinstance(pii_type, str) or _NAME.fullmatch(pii_type) is None:
        raise AgentBuildError(
            f"pii_type is a name of lower-case letters, digits and _; got {pii_type!r}"
        )
    where = f"PIIMiddleware({pii_type!r})"
    if strategy not in _STRATEGIES:
        raise AgentBuildError(
            f"{where}: strategy is one of {', '.join(_STRATEGIES)}; got {strategy!r}"
        )
    if salt is not None and (strategy != "hash" or not isinstance(salt, str | bytes) or not salt):
        raise AgentBuildError(f"{where}: salt= is a text or bytes, for strategy='hash'")
    if isinstance(reveal_to, str):
        raise AgentBuildError(f"{where}: reveal_to is a list of tool names; write [{reveal_to!r}]")
    if strategy != "tokenize" and (reveal_to or vault is not None):
        raise AgentBuildError(f"{where}: reveal_to and vault are for strategy='tokenize'")


R = TypeVar("R", bound=Record)

_MESSAGES: TypeAdapter[list[Any]] = TypeAdapter(list[MessageWrite])

_CUT_AT = frozenset({99, 100, 500, 2_000})
"""Lengths to which records cut texts (summaries, goals, results in events)."""

_CUT = " more characters)"


async def redact_thread(
    checkpointer: Checkpointer,
    thread_id: str,
    middleware: Sequence[AgentMiddleware],
    *,
    store: Store | None = None,
) -> None:
    """Redact all data of a thread in a journal by the rules of middleware.

    States, history, records of runs, questions, answers and events are all redacted, or none of
    them. The rules for its role apply to a message; all rules apply to everything else. Data that a
    rule blocks is redacted. A file on disk whose earlier content is redacted here can no longer be
    restored. Numbers below 13 digits in the state stay as they are. No run may change the thread
    meanwhile. An agent without this middleware that has
    worked on the thread may remember the old thread until its process ends. On SQLite, the old
    bytes are only removed from the file by `vacuum`.

    Hashes are the same in later runs if the middleware has a `salt`, or the thread already has a
    secret.

    Args:
        checkpointer: The journal.
        thread_id: The thread; unknown ids are ignored.
        middleware: The agent's middleware; only those that redact are used.
        store: The agent's store, for tokens.

    Raises:
        AgentBuildError: None of the middleware redacts, or tokens have nowhere to go.
        CheckpointError: The journal cannot be written; nothing was changed.
        HarnessError: A detector failed, and nothing was changed; or the vault did, and the tokens
            of the thread cannot be undone.
    """
    rules = rules_of(middleware, store)
    if not rules:
        raise AgentBuildError("none of the middleware redacts anything; nothing was changed")
    found = await checkpointer.load(thread_id)
    if found is None:
        return
    keys = Keys()
    for write in found.writes:
        if write.channel == SALT:
            keys = Keys(cast(str, from_json(write.value)))
    await checkpointer.rewrite(thread_id, _Rewriter(RunRedaction(rules, keys)))
    await keys.store()


class _Rewriter:
    """Says what each record becomes."""

    def __init__(self, screen: RunRedaction) -> None:
        every = screen.at(lenient=True)
        assert every is not None
        self._screen = screen
        self._clean: Redactor = every

    def __call__(self, record: R, /) -> R:
        return cast(R, self._rewritten(record))

    def _rewritten(self, record: Record) -> Record:
        clean = self._clean
        match record:
            case StoredWrite():
                return changed(record, value=self._value(record))
            case Checkpoint():
                return changed(record, summary=self._text(record.summary))
            case Run():
                return changed(
                    record,
                    goal=self._text(record.goal),
                    answer=self._text(record.answer),
                    reason=self._text(record.reason),
                    idempotency_key=self._text(record.idempotency_key),
                )
            case Interrupt():
                return changed(
                    record,
                    message=clean(record.message),
                    payload=clean_json(record.payload, clean, numbers=record.is_question),
                    answer_schema=clean_json(record.answer_schema, clean, numbers=False),
                    answer=clean_json(record.answer, clean),
                )
            case FileChange():
                return clean_change(changed(record, path=clean(record.path)), clean)
            case RunEvent():
                # Other events hold the harness's own numbers, such as usage and limits.
                numbers = record.mode == "custom" or record.data.get("event") == "tool_start"
                data = clean_json(record.data, self._text, numbers=numbers)
                return changed(record, data=data)

    def _value(self, write: StoredWrite) -> bytes:
        if write.channel == SALT:
            return write.value
        if write.channel == "messages":
            try:
                messages = _MESSAGES.validate_json(write.value)
            except ValidationError:
                pass  # of another version: all texts in it are looked at
            else:
                cleaned = [self._screen.message(one, lenient=True) for one in messages]
                same = all(a is b for a, b in zip(cleaned, messages, strict=True))
                return write.value if same else _MESSAGES.dump_json(cleaned)
        return clean_json_bytes(write.value, self._clean, numbers=False)

    def _text(self, text: Any) -> Any:
        """Return a record's text clean; of one that was cut, only what is decided before it."""
        if not text:
            return text
        whole, mark, _ = text.rpartition(" … (") if text.endswith(_CUT) else (text, "", "")
        if not mark and len(text) not in _CUT_AT:
            return self._clean(text)
        stream = TextStream(self._clean)
        decided = stream.feed(whole)
        if decided == whole:
            return text
        return decided + "…"
