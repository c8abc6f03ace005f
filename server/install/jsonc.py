"""Editor for JSON with comments (JSONC), which changes the text in place.

An edit is a few insertions and deletions in the text. Everything else stays unchanged, byte for
byte: comments, trailing commas, order, indentation and line ends. Before a result is returned, it
is parsed and compared with the expected data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic import JsonValue

from .jsonc_reader import SPACE, Element, JsoncError, Node, read

__all__ = ["append_item", "parse", "remove_item", "remove_member", "set_member"]


Path: TypeAlias = Sequence[str]
"""Keys from the top level; `()` is the document itself."""

_Written: TypeAlias = Callable[[str | None], str]
"""Returns an element's text for the indentation of its line; None puts it on one line."""


def parse(text: str) -> JsonValue:
    """Parse a text. A duplicate key has its last value, as in JavaScript.

    Raises:
        JsoncError: The text is not JSON, even with comments and trailing commas allowed.
    """
    return read(text).value


def set_member(text: str, path: Path, value: JsonValue) -> str:
    """Return the text with a member set; missing objects on its path are created.

    Raises:
        JsoncError: The text is not valid, or a value on the path is not an object.
    """
    *parents, key = path
    expected = parse(text)
    holder = expected
    for step, name in enumerate(parents):
        if isinstance(holder, dict) and name not in holder:
            made: JsonValue = {key: value}
            for missing in reversed(parents[step + 1 :]):
                made = {missing: made}
            return set_member(text, path[: step + 1], made)
        holder = _object(holder, path[:step])[name]
    holder = _object(holder, parents)
    if key in holder and holder[key] == value:
        return text
    holder[key] = value
    return _checked(_with_member(text, parents, key, value), expected)


def remove_member(text: str, path: Path) -> str:
    """Return the text without a member; unchanged if the member does not exist.

    Raises:
        JsoncError: The text is not valid, or a value on the path is not an object.
    """
    *parents, key = path
    expected = parse(text)
    holder = expected
    for step, name in enumerate(parents):
        holder = _object(holder, path[:step]).get(name)
        if holder is None:
            return text
    if _object(holder, parents).pop(key, _MISSING) is _MISSING:
        return text
    while found := [one for one in _find(read(text), parents).elements if one.key == key]:
        text = _without(text, _find(read(text), parents), found[-1])
    return _checked(text, expected)


def append_item(text: str, path: Path, item: JsonValue) -> str:
    """Return the text with an item appended to an array; a missing array is created.

    Raises:
        JsoncError: The text is not valid, or the value at the path is not an array.
    """
    expected = parse(text)
    held = _held(expected, path)
    if held is None:
        return set_member(text, path, [item])
    _array(held, path).append(item)
    node = _find(read(text), path)
    return _checked(_insert(text, node, lambda indent: _dumped(item, text, indent)), expected)


def remove_item(text: str, path: Path, item: JsonValue) -> str:
    """Return the text without the items of an array that equal this one.

    Raises:
        JsoncError: The text is not valid, or the value at the path is not an array.
    """
    expected = parse(text)
    held = _held(expected, path)
    if held is None or item not in _array(held, path):
        return text
    items = _array(held, path)
    items[:] = [one for one in items if one != item]
    while found := [one for one in _find(read(text), path).elements if one.node.value == item]:
        text = _without(text, _find(read(text), path), found[-1])
    return _checked(text, expected)


def _find(node: Node, path: Path) -> Node:
    for key in path:
        node = next(one.node for one in reversed(node.elements) if one.key == key)
    return node


_MISSING: JsonValue = {"": "a value that no document has"}


def _named(path: Path) -> str:
    return ".".join(path) or "the document"


def _object(value: JsonValue, path: Path) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise JsoncError(f"{_named(path)} is not an object")
    return value


def _array(value: JsonValue, path: Path) -> list[JsonValue]:
    if not isinstance(value, list):
        raise JsoncError(f"{_named(path)} is not an array")
    return value


def _held(document: JsonValue, path: Path) -> JsonValue:
    """Return the value at a path, or None."""
    for step, key in enumerate(path):
        document = _object(document, path[:step]).get(key)
        if document is None:
            return None
    return document


def _checked(text: str, expected: JsonValue) -> str:
    if parse(text) != expected:
        raise JsoncError("it is written in a way that cannot be edited safely")
    return text


# --- writing -------------------------------------------------------------------------------


def _with_member(text: str, parents: Path, key: str, value: JsonValue) -> str:
    holder = _find(read(text), parents)
    present = [one for one in holder.elements if one.key == key]
    if present:
        node = present[-1].node
        written = _dumped(value, text, _indent_of_line(text, present[-1].start))
        return text[: node.start] + written + text[node.end :]
    name = json.dumps(key, ensure_ascii=False)
    return _insert(text, holder, lambda indent: f"{name}: {_dumped(value, text, indent)}")


def _insert(text: str, holder: Node, written: _Written) -> str:
    """Insert an element at the end of an object or array."""
    elements = holder.elements
    close = holder.end - 1
    last = elements[-1] if elements else None
    if last is not None and "\n" not in text[holder.start : holder.end]:
        ours = written(None)
        if last.comma is not None:
            return f"{text[: last.comma + 1]} {ours},{text[last.comma + 1 :]}"
        return f"{text[: last.node.end]}, {ours}{text[last.node.end :]}"
    outer = _indent_of_line(text, holder.start)
    own = next((one for one in reversed(elements) if _begins_line(text, one.start)), None)
    indent = outer + _unit(text) if own is None else _indent_of_line(text, own.start)
    at = holder.start + 1 + len(text[holder.start + 1 : close].rstrip(SPACE))
    tail = text[at:close]
    if "\n" not in tail:  # otherwise the closing brace would follow on our last line
        tail = _newline(text) + outer
    ours = _newline(text) + indent + written(indent)
    if last is None:
        return text[:at] + ours + tail + text[close:]
    if last.comma is not None:
        return text[:at] + ours + "," + tail + text[close:]
    comma = last.node.end
    return f"{text[:comma]},{text[comma:at]}{ours}{tail}{text[close:]}"


def _without(text: str, holder: Node, gone: Element) -> str:
    """Remove an element with its comma, and its line if nothing else is on it."""
    elements = holder.elements
    place = elements.index(gone)
    is_last = place == len(elements) - 1
    cuts: list[tuple[int, int]] = []
    if is_last and gone.comma is None and place > 0:
        before = elements[place - 1].comma
        assert before is not None
        cuts.append((before, before + 1))
    end = gone.node.end
    if gone.comma is not None:
        if text[end : gone.comma].strip(SPACE):
            cuts.append((gone.comma, gone.comma + 1))
        else:
            end = gone.comma + 1
    if place == 0 and not is_last and not text[end : elements[1].start].strip(" \t"):
        return text[: gone.start] + text[elements[1].start :]  # on one line with the next element
    start = holder.start + 1 + len(text[holder.start + 1 : gone.start].rstrip(SPACE))
    if start == holder.start + 1 and not text[end : holder.end - 1].strip(SPACE):
        return text[:start] + text[holder.end - 1 :]  # empty again: `{}`
    line_end = re.compile(r"[\r\n]|\Z").search(text, end)
    assert line_end is not None
    if "\n" in text[start : gone.start] and text[end : line_end.start()].strip(" \t"):
        # The rest of the line must not move up behind a comment on the previous line.
        start = gone.start
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    cuts.append((start, end))
    for first, last in sorted(cuts, reverse=True):
        text = text[:first] + text[last:]
    return text


def _dumped(value: JsonValue, text: str, indent: str | None) -> str:
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return written.replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _unit(text: str) -> str:
    """Return the indentation of the first indented line that begins with a key."""
    found = re.search(r'^([ \t]+)"', text, re.MULTILINE)
    return found[1] if found else "  "


def _indent_of_line(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    found = re.compile(r"[ \t]*").match(text, begin)
    assert found is not None
    return found[0]


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip(" \t")
