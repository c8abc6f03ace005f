"""Redaction of streams and of values that are written to a store.

When a text arrives in pieces, only the part that later text cannot change is passed on. The joined
output equals the redaction of the whole text.

Tools and hooks of a redacting agent use their long-term store through `ScreenedStore`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from .._internal.records import changed
from ..models.base import Delta
from ..store.base import Index, Namespace, Operation, Put, Result, Ttl
from .rules import Keys, Redactor
from .values import clean_json

if TYPE_CHECKING:
    from ..store.base import Store

__all__ = ["DeltaStream", "JsonStream", "ScreenedStore", "TextStream", "unscreened"]


_CONTEXT = 4_000
"""How many characters before the undecided part detectors see as context, within its line."""


class TextStream:
    """Redaction of one text that arrives in pieces."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._parts: list[str] = []
        self._size = 0
        self._done = 0
        self._wait = 0

    def feed(self, piece: str) -> str:
        """Add a piece of the text; return the redacted part that can be passed on.

        Raises:
            PIIDetectionError: A rule blocks the text so far.
            MiddlewareError: A detector failed.
        """
        self._parts.append(piece)
        self._size += len(piece)
        if self._size < self._wait:
            return ""
        text = "".join(self._parts)
        out = self._upto(text, max(self._redactor.open_from(text), self._done))
        # The more text is held back, the longer the wait until the next check. Otherwise a text
        # that is held back to its end would be checked again for each piece.
        self._wait = self._size + (self._size - self._done) // 8
        return out

    def close(self) -> str:
        """Return the rest; the text ends here."""
        text = "".join(self._parts)
        return self._upto(text, len(text))

    def _upto(self, text: str, end: int) -> str:
        """Return the redacted text up to `end`, or up to a match that crosses it."""
        if end <= self._done:
            self._parts = [text]
            return ""
        parts: list[str] = []
        place = self._done
        for match in self._redactor.find(text):
            if match.end <= place:
                continue
            if match.start >= end or match.end > end:
                end = min(end, max(match.start, place))
                break
            parts += (text[place : match.start], self._redactor.replacement(text, match))
            place = match.end
        parts.append(text[place:end])
        self._forget(text, max(place, end))
        return "".join(parts)

    def _forget(self, text: str, done: int) -> None:
        start = max(text.rfind("\n", 0, done) + 1, done - _CONTEXT)
        self._parts = [text[start:]]
        self._size, self._done = len(text) - start, done - start


class JsonStream:
    """Redaction of one JSON value that arrives as text: its strings and its numbers."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._string: TextStream | None = None
        self._escape = ""
        self._number = ""

    def feed(self, piece: str) -> str:
        """Add a piece of the JSON text; return the redacted JSON text that can be passed on."""
        return "".join(self._feed(piece))

    def close(self) -> str:
        """Return the rest; the text ends here."""
        if self._string is None:
            return self._ended_number()
        return self._ended_string(self._string)

    def _ended_string(self, string: TextStream) -> str:
        rest = string.feed(_decoded(self._escape)) if self._escape else ""
        self._string, self._escape = None, ""
        return _escaped(rest + string.close())

    def _feed(self, piece: str) -> Iterator[str]:
        for part in _PARTS.findall(piece):
            if self._string is None:
                yield from self._outside(part)
            elif part == '"' and self._escape != "\\":
                yield self._ended_string(self._string) + '"'
            elif self._escape or part == "\\":
                yield from self._escaped(self._string, part)
            else:
                yield _escaped(self._string.feed(part))

    def _outside(self, part: str) -> Iterator[str]:
        for one in part:
            if one in _NUMBER:
                self._number += one
                continue
            yield self._ended_number() + one
            if one == '"':
                self._string = TextStream(self._redactor)

    def _ended_number(self) -> str:
        number, self._number = self._number, ""
        if not any(map(str.isdigit, number)):  # such as the end of `true`
            return number
        try:
            value = json.loads(number)
        except ValueError:  # no number, or one of thousands of digits
            value = number
        cleaned = clean_json(value, self._redactor)
        return number if cleaned == value else json.dumps(cleaned)

    def _escaped(self, string: TextStream, part: str) -> Iterator[str]:
        for one in part:
            if not self._escape and one != "\\":
                yield _escaped(string.feed(one))
                continue
            self._escape += one
            text = _unescaped(self._escape)
            if text is not None:
                self._escape = ""
                yield _escaped(string.feed(text))


_PARTS = re.compile(r"\\|\"|[^\"\\]+")
_NUMBER = "-0123456789.eE+"


def _unescaped(escape: str) -> str | None:
    """Return the character of an escape sequence, or None while it is incomplete."""
    if len(escape) < 2 or (escape[1] == "u" and len(escape) < 6):
        return None
    half = escape[1:3].lower() == "ud" and escape[3].lower() in "89ab"
    if half and len(escape) < 12 and "\\u"[: len(escape) - 6] == escape[6:8]:
        return None  # the second surrogate is still to come
    return _decoded(escape)


def _decoded(escape: str) -> str:
    try:
        return json.loads(f'"{escape}"')
    except ValueError:
        return escape


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1] if text else ""


class DeltaStream:
    """Redaction of a model's answer that arrives in pieces."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._kind = ""
        self._open: dict[tuple[str, str | None], tuple[Delta, TextStream | JsonStream]] = {}

    def feed(self, delta: Delta) -> list[Delta]:
        """Add a piece; return the redacted pieces that can be passed on.

        Raises:
            PIIDetectionError: A rule blocks the text so far.
            MiddlewareError: A detector failed.
        """
        ended = self.close() if delta.kind != self._kind else []
        self._kind = delta.kind
        key = delta.kind, delta.tool_call_id
        if key not in self._open:
            name = None if delta.tool_name is None else self._redactor(delta.tool_name)
            kind = JsonStream if delta.kind == "tool_args" else TextStream
            self._open[key] = changed(delta, text="", tool_name=name), kind(self._redactor)
        empty, stream = self._open[key]
        text = stream.feed(delta.text)
        return [*ended, changed(empty, text=text)] if text or not delta.text else ended

    def close(self) -> list[Delta]:
        """Return the rest of all open texts."""
        rest = [changed(empty, text=stream.close()) for empty, stream in self._open.values()]
        self._open.clear()
        return [one for one in rest if one.text]


class ScreenedStore:
    """A store that redacts values before it stores them. It passes on every other call.

    Namespaces and keys stay unchanged, because lookups need them.

    Args:
        store: The store.
        redactor: Redacts the values.
        keys: Keys of the thread. New tokens are stored before a value that contains them.
    """

    def __init__(self, store: Store, redactor: Redactor, keys: Keys) -> None:
        self.plain = store
        self._redactor = redactor
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    async def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, JsonValue],
        *,
        index: Index | None = None,
        ttl: Ttl = "default",
    ) -> None:
        """Store an item; see `Store.put`.

        Raises:
            PIIDetectionError: A rule blocks a text in it; nothing was stored.
        """
        value = self._clean(value)
        await self._keys.store()
        await self.plain.put(namespace, key, value, index=index, ttl=ttl)

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        """Run operations; see `Store.batch`.

        Raises:
            PIIDetectionError: A rule blocks a text in one of them; nothing was done.
        """
        operations = [
            changed(one, value=self._clean(one.value)) if isinstance(one, Put) else one
            for one in operations
        ]
        await self._keys.store()
        return await self.plain.batch(operations)

    def _clean(self, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        if not isinstance(value, dict):
            return value  # the store raises its own error
        return cast("dict[str, JsonValue]", clean_json(value, self._redactor))


def unscreened(store: Store | None) -> Store | None:
    """Return the store without redaction: files must be stored exactly as they were written."""
    return store.plain if isinstance(store, ScreenedStore) else store
