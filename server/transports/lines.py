"""Lines of JSON: splits a byte stream into lines, and reads each line as a message.

A line that is not a message gets an error, with the id of its request if there is one, so that its
sender stops waiting. Of a line that is too large, only the two ends are kept, to find its id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Final, TypeAlias, cast

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from ...harness._internal.records import record
from .message_bounds import FREE_BYTES, MessageBounds, MessageTooLarge

__all__ = ["MAX_LINE_BYTES", "Line", "LineSplitter", "Refused", "parse"]

MAX_LINE_BYTES: Final = 14 * 1024 * 1024
"""The longest message accepted. A larger one is skipped without being held in memory."""

LOOK_BYTES: Final = 16 * 1024
"""Bytes of each end of a too large line that are searched for its id."""

MAX_ID_DIGITS: Final = 100

_TOKEN = re.compile(
    rb'\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+)',
    re.DOTALL,
)
_LAST_ID = re.compile(
    rb'[,{]\s*"id"\s*:\s*(-?[0-9]+|"[^"\\]*(?:\\.[^"\\]*)*")\s*\}\s*\Z',
    re.DOTALL,
)


@record
class _LongLine:
    """What is kept of a line that is too large.

    Attributes:
        why: The error for its sender.
        head: Its first bytes.
        tail: Its last bytes.
    """

    why: str
    head: bytes
    tail: bytes


Line: TypeAlias = "bytes | _LongLine"


class LineSplitter:
    """Splits a byte stream; holds no more than one line of the allowed length.

    Args:
        most: The most bytes of a line that is kept whole.
    """

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._bounds: MessageBounds | None = None
        self._why = ""
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> Generator[Line]:
        """Yield the lines that a chunk completes, without blank ones."""
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            if self._size or len(piece) > FREE_BYTES:
                self._add(piece)
                yield from self.end()
            elif piece and not piece.isspace():  # the whole of a short line, the usual case
                yield piece
        if rest:
            self._add(rest)

    def end(self) -> Generator[Line]:
        """Yield the rest after the last line end."""
        line = b"".join(self._pieces)
        long = _LongLine(self._told(), self._head, self._tail) if self._head else None
        self._begin()
        if long is not None:
            yield long
        elif line and not line.isspace():
            yield line

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._head:
            self._look_at(piece)
            return
        self._pieces.append(piece)
        if self._size <= FREE_BYTES:
            return
        if self._size <= self._most:
            try:
                self._count()
            except MessageTooLarge as error:
                self._why = str(error)
            else:
                return
        for one in self._pieces:  # not joined, because that would need the memory twice
            self._look_at(one)
        self._pieces.clear()

    def _count(self) -> None:
        """Check a line against the limits of messages.

        Raises:
            MessageTooLarge: It exceeds one.
        """
        if self._bounds is not None:
            self._bounds.feed(self._pieces[-1])
            return
        self._bounds = MessageBounds()
        for one in self._pieces:
            self._bounds.feed(one)

    def _told(self) -> str:
        return self._why or (
            f"the message is {self._size} bytes long and was not read; at most {self._most} are "
            "accepted. Send large content in several calls."
        )

    def _look_at(self, piece: bytes) -> None:
        self._head += piece[: LOOK_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-LOOK_BYTES:])[-LOOK_BYTES:]


@record
class Refused:
    """A line that is not a message, and the error for its sender."""

    answer: JSONRPCError


def parse(line: Line) -> JSONRPCMessage | Refused:
    """Return the message on a line, or the error for a line that is not a message.

    A client's answer that is too long becomes an error, so that the code that asked is told.
    """
    if isinstance(line, _LongLine):
        return _unread(line)
    try:
        if len(line) <= FREE_BYTES:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        else:  # parsed once; validating its bytes would parse it twice
            message = jsonrpc_message_adapter.validate_python(from_json(line), by_name=False)
    except ValidationError as error:
        return Refused(_refusal(line, _unreadable(error)))
    except ValueError as error:
        return Refused(_refusal(line, str(error)))
    if isinstance(message, JSONRPCNotification) and _has_id(line):
        return Refused(_refusal(line))
    return message


def _has_id(line: bytes) -> bool:
    """Whether a request would count as a notification, because its id is not allowed."""
    return b'"id"' in line and "id" in cast("dict[str, object]", from_json(line))


def _unreadable(error: ValidationError) -> str | None:
    """Return why a line is not valid JSON, such as half a surrogate pair in a string."""
    if error.error_count() > 1:
        return None
    (one,) = error.errors(include_url=False, include_input=False)
    return one["msg"] if one["type"] == "json_invalid" else None


def _refusal(line: bytes, unreadable: str | None = None) -> JSONRPCError:
    """Return the error for the sender of a line, with the request's id if there is one."""
    try:
        value = cast("object", json.loads(line))
    except (ValueError, RecursionError) as error:
        data = ErrorData(code=PARSE_ERROR, message=f"Parse error: the line is not JSON: {error}")
        return JSONRPCError(jsonrpc="2.0", id=None, error=data)
    request_id: RequestId | None = None
    if isinstance(value, dict):
        given = cast("dict[str, object]", value).get("id")
        if isinstance(given, str | int) and not isinstance(given, bool):
            request_id = given
    if unreadable is not None:
        data = ErrorData(code=PARSE_ERROR, message=f"Parse error: {unreadable}. Nothing was done.")
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=data)
    what = (
        "batches are not accepted"
        if isinstance(value, list)
        else "it is not a JSON-RPC 2.0 message"
    )
    data = ErrorData(code=INVALID_REQUEST, message=f"Invalid request: {what}; send one per line")
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=data)


# --- lines that are too large ------------------------------------------------------------------


def _unread(line: _LongLine) -> JSONRPCError | Refused:
    members = _members(line.head)
    data = ErrorData(code=INVALID_REQUEST, message=line.why)
    answer = JSONRPCError(jsonrpc="2.0", id=_id_of(line, members), error=data)
    if "result" in members or "error" in members:  # the ids of answers are ours, not the client's
        return answer if answer.id is not None else Refused(answer)
    if "method" in members or "params" in members:
        return Refused(answer)
    return Refused(answer.model_copy(update={"id": None}))


def _id_of(line: _LongLine, members: dict[str, bytes]) -> RequestId | None:
    """Return the id at the start or end of a line: some clients write it first, others last."""
    text = members.get("id")
    if text is None:
        last = _LAST_ID.search(line.tail)
        text = b"" if last is None else last[1]
    if len(text) > MAX_ID_DIGITS and not text.startswith(b'"'):
        return None
    try:
        value = cast("object", from_json(text))
    except ValueError:
        return None
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _members(head: bytes) -> dict[str, bytes]:
    """Return the complete members of an object of which only the beginning is known.

    Values are raw text. Objects, lists and values that may be cut off are left out.
    """
    members: dict[str, bytes] = {}
    depth, place, before, name = 0, 0, b"", ""
    while (token := _TOKEN.match(head, place)) is not None:
        place, text = token.end(), token[1]
        if text in (b"{", b"["):
            depth += 1
            if depth == 1 and text == b"[":
                break
        elif text in (b"}", b"]"):
            depth -= 1
            if depth < 1:
                break
        elif depth == 1 and text == b":":
            name = _name(before)
            members[name] = b""
        elif depth == 1 and text == b",":
            members[name] = before
        before = text
    return members


def _name(text: bytes) -> str:
    try:
        return str(from_json(text))
    except ValueError:
        return ""
