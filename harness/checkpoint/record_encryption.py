"""Record encryption: encrypts and decrypts the records of a journal.

A sealed record has the same type as an open one, so any checkpointer can store it. Bytes become a
mark and sealed bytes, a text becomes `sealed:` and base64, a dictionary `{"sealed": …}`, and a path
a path with one such text. `invariants.CONTENT` lists the sealed fields.

Each value is bound to its place: its field, and the id of its run, checkpoint or interrupt. In any
other place it does not open. Values that a journal stores only once cannot be bound that closely:
the value of a write is bound to its channel and to whether it overwrites, the old content of a file
only to its field. Nothing is bound to a thread, because threads are copied inside a journal.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import JsonValue

from .._internal.records import changed, record
from ..errors import CheckpointError
from .admission import unstorable
from .base import (
    Batch,
    Checkpoint,
    FileChange,
    Interrupt,
    Record,
    Run,
    RunEvent,
    StoredWrite,
    TaskWrites,
)
from .codec import compress, decompress, json_text
from .keyring import Cipher, Damaged, UnknownKey

__all__ = ["FIELDS", "RecordCipher", "is_sealed"]

R = TypeVar("R", bound=Record)

_BYTES_MARK, _TEXT_MARK = b"\x02sealed\x00", "sealed:"
"""First bytes of sealed values. Encoded values are JSON, which never begins like the first."""

_PLAIN = (
    "{what} is not sealed, but the journal was opened with a key. Nothing was changed. If this "
    "journal was never encrypted, seal it once: `deep-agent-mcp threads seal --plain`, or "
    "`EncryptedCheckpointer.seal_plain`. If it was, somebody else wrote this: restore a backup, or "
    "delete the thread."
)
_UNKNOWN_KEY = (
    "the journal key is wrong, or one is missing: {what} is sealed with key {key}, not with "
    "{known}. Nothing was changed. Give key {key} too: add it, on a line below the others, to the "
    "file that `journal_key_file` names. Without that key nobody can read this."
)
_DAMAGED = (
    "{what} cannot be opened: it was damaged, or changed or moved by somebody without the key. "
    "Nothing was changed. Restore a backup, or delete the thread."
)


def _text_bytes(value: str) -> bytes:
    return compress(value.encode())


def _text(data: bytes) -> str:
    return decompress(data).decode()


def _json_bytes(value: JsonValue) -> bytes:
    # A tool's result can contain half a surrogate pair, and events contain results.
    return compress(json_text(value).encode("utf-8", "surrogatepass"))


def _json(data: bytes) -> Any:
    return json.loads(decompress(data).decode("utf-8", "surrogatepass"))


def _wrapped_bytes(sealed: bytes) -> bytes:
    return _BYTES_MARK + sealed


def _sealed_bytes(value: Any) -> bytes | None:
    if not (isinstance(value, bytes) and value.startswith(_BYTES_MARK)):
        return None
    return value[len(_BYTES_MARK) :]


def _wrapped_text(sealed: bytes) -> str:
    return _TEXT_MARK + b64encode(sealed).decode()


def _sealed_text(value: Any) -> bytes | None:
    if not (isinstance(value, str) and value.startswith(_TEXT_MARK)):
        return None
    text = value[len(_TEXT_MARK) :]
    try:
        sealed = b64decode(text, validate=True)
    except ValueError:
        return b""
    # Base64 has unused bits, but a value must have only one form.
    return sealed if b64encode(sealed).decode() == text else b""


def _wrapped_object(sealed: bytes) -> dict[str, JsonValue]:
    return {"sealed": _wrapped_text(sealed)}


def _sealed_object(value: Any) -> bytes | None:
    # A damaged journal can return any JSON here.
    if not isinstance(value, dict) or [*cast("dict[str, Any]", value)] != ["sealed"]:
        return None
    return _sealed_text(value["sealed"])


def _wrapped_path(sealed: bytes) -> tuple[str, ...]:
    return (_wrapped_text(sealed),)


def _sealed_path(value: Any) -> bytes | None:
    return _sealed_text(value[0]) if len(value) == 1 else None


def _path(data: bytes) -> tuple[str, ...]:
    return tuple(_json(data))


@record
class _Form:
    """Rules to seal one type of value.

    Attributes:
        data: Returns a value as compact bytes to seal.
        value: Returns the value of such bytes.
        wrapped: Returns sealed bytes as a value of the same type.
        sealed: Returns the sealed bytes of such a value; None when it is not one.
    """

    data: Callable[[Any], bytes]
    value: Callable[[bytes], Any]
    wrapped: Callable[[bytes], Any]
    sealed: Callable[[Any], bytes | None]


_BYTES = _Form(compress, decompress, _wrapped_bytes, _sealed_bytes)
_TEXT = _Form(_text_bytes, _text, _wrapped_text, _sealed_text)
# The search key must not depend on the format of bodies, which may change.
_KEY = _Form(str.encode, bytes.decode, _wrapped_text, _sealed_text)
_ANY = _Form(_json_bytes, _json, _wrapped_text, _sealed_text)
_OBJECT = _Form(_json_bytes, _json, _wrapped_object, _sealed_object)
_PATH = _Form(lambda value: _json_bytes([*value]), _path, _wrapped_path, _sealed_path)

FIELDS: Mapping[type[Record], Mapping[str, _Form]] = {
    StoredWrite: {"value": _BYTES},
    Checkpoint: {"author": _TEXT, "summary": _TEXT},
    Run: {"used": _TEXT, "goal": _TEXT, "answer": _TEXT, "reason": _TEXT, "idempotency_key": _KEY},
    Interrupt: {"payload": _OBJECT, "message": _TEXT, "answer_schema": _OBJECT, "answer": _ANY},
    FileChange: {"path": _TEXT, "before": _BYTES, "after_digest": _TEXT},
    RunEvent: {"path": _PATH, "data": _OBJECT},
}
"""The sealed fields of each record. The first one always has a value, and never looks sealed in an
open record, whatever a model or a user writes, so it distinguishes sealed from open records."""

_KINDS: Mapping[type[Record], str] = {
    StoredWrite: "write",
    Checkpoint: "checkpoint",
    Run: "run",
    Interrupt: "interrupt",
    FileChange: "file_change",
    RunEvent: "event",
}
_NAMES = {
    (kind, name): f"{_KINDS[kind]}.{name}".encode()
    for kind, forms in FIELDS.items()
    for name in forms
}
"""Names of fields in the context of their values; part of the format."""


_OPTIONAL = {"answer", "reason", "idempotency_key", "before", "after_digest"}
"""Fields that may be None. None is stored as it is, so it can be seen and forged."""


def is_sealed(record: Record) -> bool:
    """Whether a record is sealed, with any key."""
    name, form = next(iter(FIELDS[type(record)].items()))
    return form.sealed(getattr(record, name)) is not None


class RecordCipher:
    """Seals records with the first key, and opens them with all keys.

    Args:
        cipher: The cipher, with its keys.
    """

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def seal(self, record: R) -> R:
        """Return an open record sealed.

        Raises:
            CheckpointError, ValueError, TypeError: It contains data that cannot be stored.
        """
        seal, changes = self._cipher.seal, dict[str, Any]()
        for name, form in FIELDS[type(record)].items():
            value = getattr(record, name)
            if not _is_absent(record, name, value):
                changes[name] = form.wrapped(seal(form.data(value), _context(record, name)))
        return changed(record, **changes)

    def open(self, record: R) -> R:
        """Return a sealed record open.

        Raises:
            CheckpointError: It is not sealed, sealed with a missing key, or damaged.
        """
        changes = dict[str, Any]()
        for name, form in FIELDS[type(record)].items():
            value = getattr(record, name)
            if not _is_absent(record, name, value):
                changes[name] = self._opened(record, name, form, value)
        return changed(record, **changes)

    def reseal(self, record: R) -> R:
        """Return a sealed record sealed with the first key.

        Raises:
            CheckpointError: As for `open`.
        """
        return self.seal(self.open(record))

    def seal_plain(self, record: R) -> R:
        """Return a record, open or sealed, sealed with the first key.

        Raises:
            CheckpointError: As for `open`.
        """
        return self.reseal(record) if is_sealed(record) else self.seal(record)

    def unseal(self, record: R) -> R:
        """Return a record, open or sealed, open.

        Raises:
            CheckpointError: It is sealed with a missing key, or damaged.
        """
        return self.open(record) if is_sealed(record) else record

    def seal_tasks(self, tasks: Sequence[TaskWrites]) -> list[TaskWrites]:
        """Return tasks with sealed writes."""
        return [changed(one, writes=tuple(map(self.seal, one.writes))) for one in tasks]

    def open_tasks(self, tasks: Sequence[TaskWrites]) -> list[TaskWrites]:
        """Return tasks with open writes."""
        return [changed(one, writes=tuple(map(self.open, one.writes))) for one in tasks]

    def seal_batch(self, batch: Batch) -> Batch:
        """Return a batch with everything in it sealed.

        Raises:
            CheckpointError: It contains data that cannot be stored; nothing was stored.
        """
        try:
            return changed(
                batch,
                writes=self.seal_tasks(batch.writes),
                checkpoints=[*map(self.seal, batch.checkpoints)],
                runs=[*map(self.seal, batch.runs)],
                interrupts=[*map(self.seal, batch.interrupts)],
                answers={asked: self._answer(asked, one) for asked, one in batch.answers.items()},
                file_changes=[*map(self.seal, batch.file_changes)],
                snapshots=[
                    changed(one, writes=tuple(map(self.seal, one.writes)))
                    for one in batch.snapshots
                ],
                events=[*map(self.seal, batch.events)],
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise unstorable(batch, error) from error

    def keys_of_runs(self, idempotency_key: str) -> list[str]:
        """Return the stored forms of a run's idempotency key, one for each encryption key."""
        data = FIELDS[Run]["idempotency_key"].data(idempotency_key)
        context = [_NAMES[Run, "idempotency_key"]]
        return [_wrapped_text(one) for one in self._cipher.seal_with_each(data, context)]

    def _answer(self, interrupt_id: str, answer: JsonValue) -> JsonValue:
        context = [_NAMES[Interrupt, "answer"], _id_bytes(interrupt_id)]
        return _wrapped_text(self._cipher.seal(_ANY.data(answer), context))

    def _opened(self, record: Record, name: str, form: _Form, value: Any) -> Any:
        sealed = form.sealed(value)
        if sealed is None:
            raise CheckpointError(_PLAIN.format(what=_what(record, name)))
        try:
            return form.value(self._cipher.open(sealed, _context(record, name)))
        except UnknownKey as error:
            known = ", ".join(self._cipher.key_ids)
            message = _UNKNOWN_KEY.format(what=_what(record, name), key=error, known=known)
            raise CheckpointError(message) from None
        except (Damaged, ValueError):
            raise CheckpointError(_DAMAGED.format(what=_what(record, name))) from None


def _is_absent(record: Record, name: str, value: Any) -> bool:
    """Whether a field has no value; None counts as a value if it can be an answer."""
    if value is not None or name not in _OPTIONAL:
        return False
    return not (isinstance(record, Interrupt) and record.answered)


def _context(record: Record, name: str) -> list[bytes]:
    """Return the context to which the value of a field is bound."""
    field = _NAMES[type(record), name]
    match record:
        case StoredWrite():
            return [field, _id_bytes(record.channel), b"\x01" if record.overwrite else b"\x00"]
        case Checkpoint() | Run() | Interrupt():
            return [field] if name == "idempotency_key" else [field, _id_bytes(record.id)]
        case _:
            return [field] if name == "before" else [field, _id_bytes(record.run_id)]


def _id_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_CALLED: Mapping[str, str] = {
    "used": "recorded usage",
    "idempotency_key": "idempotency key",
    "answer_schema": "answer schema",
    "before": "former content",
    "after_digest": "digest",
}
"""Fields whose names do not describe their content."""


def _what(record: Record, name: str) -> str:
    name = _CALLED.get(name, name)
    match record:
        case StoredWrite():
            return f"a value of channel {record.channel!r}"
        case Checkpoint() | Run() | Interrupt():
            return f"the {name} of {_KINDS[type(record)]} {record.id}"
        case FileChange():
            return f"the {name} of a file that run {record.run_id} changed"
        case RunEvent():
            return f"the {name} of an event of run {record.run_id}"
