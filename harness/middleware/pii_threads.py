"""Redacts a thread that was stored before anything redacted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

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
from ..loop.run.redaction import SALT, RunRedaction, clean_change, rules_of
from ..messages.message import MessageWrite
from ..redaction.rules import Keys, Redactor
from ..redaction.streams import TextStream
from ..redaction.values import clean_json, clean_json_bytes
from ..store.base import Store

__all__ = ["redact_thread"]

R = TypeVar("R", bound=Record)

_MESSAGES: TypeAdapter[list[Any]] = TypeAdapter(list[MessageWrite])

_CUT_AT = frozenset({99, 100, 500, 2_000})
"""Lengths at which records cut texts (summaries, goals, results in events)."""

_CUT = " more characters)"


async def redact_thread(
    checkpointer: Checkpointer,
    thread_id: str,
    middleware: Sequence[AgentMiddleware],
    *,
    store: Store | None = None,
) -> None:
    """Replace what middleware redacts in everything that a journal holds of a thread.

    States, history, records of runs, questions, answers, events: all of it or nothing. Messages
    are judged by who speaks in them, everything else by all rules. What a rule blocks is redacted.
    A file on disk whose earlier content is redacted here cannot be put back any more. Let no run
    move the thread meanwhile; an agent without this middleware that has worked on the thread may
    remember it as it was until its process ends. On SQLite the old bytes are gone from the file
    after `vacuum`.

    Hashes are those of later runs if the middleware has a `salt`, or the thread a secret already.

    Args:
        checkpointer: The journal.
        thread_id: The thread; an unknown one does nothing.
        middleware: The agent's middleware; what redacts nothing is left out.
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
                    payload=clean_json(record.payload, clean),
                    answer_schema=clean_json(record.answer_schema, clean),
                    answer=clean_json(record.answer, clean),
                )
            case FileChange():
                return clean_change(changed(record, path=clean(record.path)), clean)
            case RunEvent():
                return changed(record, data=clean_json(record.data, self._text))

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
        return clean_json_bytes(write.value, self._clean)

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
