"""Parser for JSON with comments (JSONC) that also returns the position of each value."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from ...harness._internal.records import record

__all__ = ["JsoncError"]


MAX_DEPTH = 200
MAX_DIGITS = 1_000

SPACE = " \t\r\n"
_SKIPPED = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*[\s\S]*?\*/)*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\.)*+"')
_WORD = re.compile(r"[^\s,:{}\[\]\"/]+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}


class JsoncError(ValueError):
    """The file is not valid JSONC, or cannot be edited; the message gives position and reason."""


@record
class Node:
    """A value and its position in the text.

    Attributes:
        start: Index of its first character.
        end: Index after its last character.
        value: The parsed value.
        elements: Elements of an object or array, in order.
    """

    start: int
    end: int
    value: JsonValue
    elements: tuple[Element, ...] = ()


@record
class Element:
    """A member of an object, or an item of an array.

    Attributes:
        start: Index of its key; for items, of the value.
        node: Its value.
        comma: Index of the comma after it; None without a comma.
        key: The key of a member; None for items.
    """

    start: int
    node: Node
    comma: int | None
    key: str | None


# --- reading -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = field(default=0)

    def document(self) -> Node:
        self.skip()
        node = self.value(0)
        self.skip()
        if self.at < len(self.text):
            raise self.error("there is text after the end of the document")
        return node

    def skip(self) -> None:
        """Skip white space and comments."""
        found = _SKIPPED.match(self.text, self.at)
        assert found is not None  # the pattern also matches the empty string
        self.at = found.end()
        if self.text.startswith("/*", self.at):
            raise self.error("this comment is not closed")

    def value(self, depth: int) -> Node:
        char = self.peek()
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels")
        if char == "{":
            return self.container(depth, "}")
        if char == "[":
            return self.container(depth, "]")
        if char == '"':
            return self.string()
        return self.word()

    def container(self, depth: int, close: str) -> Node:
        start = self.at
        self.at += 1
        elements: list[Element] = []
        self.skip()
        while self.peek() != close:
            if elements and elements[-1].comma is None:
                raise self.error(f"a comma or {close} is expected")
            begin = self.at
            key = self.key() if close == "}" else None
            node = self.value(depth + 1)
            self.skip()
            comma = self.at if self.peek() == "," else None
            if comma is not None:
                self.at += 1
                self.skip()
            elements.append(Element(begin, node, comma, key))
        self.at += 1
        value: JsonValue = [one.node.value for one in elements]
        if close == "}":
            value = {one.key or "": one.node.value for one in elements}
        return Node(start, self.at, value, tuple(elements))

    def key(self) -> str:
        if self.peek() != '"':
            raise self.error("a name in double quotes is expected")
        name = cast(str, self.string().value)
        self.skip()
        if self.peek() != ":":
            raise self.error("a colon is expected")
        self.at += 1
        self.skip()
        return name

    def string(self) -> Node:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.error("this string is not closed on its line, or has a control character")
        try:
            value = cast(str, json.loads(found[0]))
        except ValueError:
            raise self.error("this string has an escape that JSON does not know") from None
        return self.leaf(found.end(), value)

    def word(self) -> Node:
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise self.error("a value is expected")
        if found[0] in _WORDS:
            return self.leaf(found.end(), _WORDS[found[0]])
        if _NUMBER.fullmatch(found[0]) and len(found[0]) <= MAX_DIGITS:
            return self.leaf(found.end(), cast(JsonValue, json.loads(found[0])))
        raise self.error(f"{found[0][:40]!r} is not a JSON value")

    def leaf(self, end: int, value: JsonValue) -> Node:
        start, self.at = self.at, end
        return Node(start, end, value)

    def peek(self) -> str:
        if self.at >= len(self.text):
            raise self.error("the document is incomplete")
        return self.text[self.at]

    def error(self, reason: str) -> JsoncError:
        before = self.text[: self.at]
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        return JsoncError(f"line {line}, column {column}: {reason}")


def read(text: str) -> Node:
    # A byte order mark is not part of the document. Edits keep it.
    return _Reader(text, 1 if text.startswith("\ufeff") else 0).document()
