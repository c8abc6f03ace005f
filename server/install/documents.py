"""Configuration files of clients: edits of one table in a JSON or TOML file, in place.

Comments, order and all other tables stay unchanged. In TOML, a new table is appended to the text,
so that nothing before it can change; tomlkit, which keeps comments, changes and removes existing
tables. Every result is parsed with the standard library and compared with the expected data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, cast

import tomlkit
from pydantic import JsonValue
from tomlkit.exceptions import TOMLKitError

from . import jsonc
from .clients import Client, Entry, Start

__all__ = ["Document", "TomlError", "document_of", "is_shell", "parse", "remove_table", "set_table"]


class TomlError(ValueError):
    """The file is not TOML, or cannot be edited; the message gives the position and the reason."""


def parse(text: str) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        TomlError: The text is not TOML.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from None


def set_table(text: str, group: str, name: str, table: Mapping[str, JsonValue]) -> str:
    """Return the text with the keys of `table` set in `[group.name]`; its other keys remain.

    Raises:
        TomlError: The text is not TOML, or `group` is not a table.
    """
    before = parse(text)
    held = _group(before, group).get(name)
    if isinstance(held, dict):
        old = cast(dict[str, Any], held)
        merged = _merged(old, table)
        if merged == old:
            return text
    else:
        merged = dict(table)
    expected = {**before, group: {**_group(before, group), name: merged}}
    if held is None and _can_append(text, group, before):
        return _checked(_appended(text, group, name, table), expected)

    def change(document: MutableMapping[str, Any]) -> None:
        tables = document.setdefault(group, tomlkit.table(is_super_table=True))
        if isinstance(held, dict):
            _update(tables[name], table)
        else:
            tables[name] = dict(table)

    return _edited(text, change, expected)


def remove_table(text: str, group: str, name: str) -> str:
    """Return the text without `[group.name]` and the tables below it.

    Raises:
        TomlError: The text is not TOML, or `group` is not a table.
    """
    before = parse(text)
    left = dict(_group(before, group))
    if left.pop(name, None) is None:
        return text
    expected = {**before, group: left}

    def change(document: MutableMapping[str, Any]) -> None:
        del document[group][name]
        if not left:
            del document[group]

    return _edited(text, change, expected)


def _group(document: Mapping[str, Any], group: str) -> dict[str, Any]:
    held = document.get(group, {})
    if not isinstance(held, dict):
        raise TomlError(f"{group} is not a table")
    return cast(dict[str, Any], held)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        held = merged.get(key)
        if isinstance(value, dict) and isinstance(held, dict):
            merged[key] = _merged(cast(dict[str, Any], held), cast(dict[str, Any], value))
        else:
            merged[key] = value
    return merged


def _update(table: MutableMapping[str, Any], new: Mapping[str, Any]) -> None:
    for key, value in new.items():
        held = table.get(key)
        if isinstance(value, dict) and isinstance(held, MutableMapping):
            _update(cast(MutableMapping[str, Any], held), cast(dict[str, Any], value))
        elif held != value:
            table[key] = value


def _can_append(text: str, group: str, before: Mapping[str, Any]) -> bool:
    """Whether a new `[group.name]` at the end is valid; it is not if the group is inline."""
    try:
        parse(f"{text}\n[{group}.{_unused(before, group)}]\n")
    except TomlError:
        return False
    return True


def _unused(before: Mapping[str, Any], group: str) -> str:
    name = "x"
    while name in _group(before, group):
        name += "x"
    return name


def _appended(text: str, group: str, name: str, table: Mapping[str, JsonValue]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    document = tomlkit.document()
    tables = tomlkit.table(is_super_table=True)
    tables[name] = dict(table)
    document[group] = tables
    ours = tomlkit.dumps(document).replace("\n", newline)  # pyright: ignore[reportUnknownMemberType]
    if not text.strip("\ufeff \t\r\n"):
        return text + ours
    gap = newline if text.endswith("\n") else newline * 2
    return text + gap + ours


def _edited(
    text: str, change: Callable[[MutableMapping[str, Any]], None], expected: Mapping[str, Any]
) -> str:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    try:
        document = tomlkit.parse(text.removeprefix(mark))
        change(document)
        edited = mark + tomlkit.dumps(document)  # pyright: ignore[reportUnknownMemberType]
    except (TOMLKitError, KeyError, TypeError) as error:
        raise TomlError(f"it is written in a way that cannot be edited safely ({error})") from error
    return _checked(edited, expected)


def _checked(text: str, expected: Mapping[str, Any]) -> str:
    result = parse(text)
    if {key: value for key, value in result.items() if value != {}} != {
        key: value for key, value in expected.items() if value != {}
    }:
        raise TomlError("it is written in a way that cannot be edited safely")
    return text


class Document(Protocol):
    """Reads and edits the entry of a server in a client's configuration file.

    Every method takes the whole text, which may be empty, and raises `ValueError` if it is not
    valid or cannot be edited.
    """

    def entry(self, text: str, name: str) -> Any:
        """Return the entry with this name, or None."""
        ...

    def with_entry(self, text: str, name: str, start: Start) -> str:
        """Return the text with our entry; keys that somebody added to it remain."""
        ...

    def without_entry(self, text: str, name: str) -> str:
        """Return the text without the entry."""
        ...


def document_of(client: Client) -> Document:
    """Return the reader and editor for a client's file format."""
    return _Toml(client) if client.format == "toml" else _Json(client)


class _Toml:
    def __init__(self, client: Client) -> None:
        (self._group,) = client.group
        self._made = client.entry

    def entry(self, text: str, name: str) -> Any:
        return _lookup(parse(text), (self._group, name))

    def with_entry(self, text: str, name: str, start: Start) -> str:
        return set_table(text, self._group, name, self._made(start))

    def without_entry(self, text: str, name: str) -> str:
        return remove_table(text, self._group, name)


class _Json:
    def __init__(self, client: Client) -> None:
        self._client = client

    def entry(self, text: str, name: str) -> Any:
        document = _parsed(text)
        return _lookup(document, (*self._group(document), name))

    def with_entry(self, text: str, name: str, start: Start) -> str:
        client = self._client
        group = self._group(_parsed(text))
        if _is_blank(text):
            text = "{}\n"
        question = client.question
        if question is not None and start.key == client.reference is not None:
            asked = _lookup(jsonc.parse(text), question.path)
            items = cast("list[Any]", asked) if isinstance(asked, list) else []
            if all(_lookup(one, ("id",)) != question.value["id"] for one in items):
                text = jsonc.append_item(text, question.path, dict(question.value))
        newer = client.newer_entry
        entry = (newer if newer and group == client.newer_group else client.entry)(start)
        return _merged_text(text, (*group, name), entry)

    def without_entry(self, text: str, name: str) -> str:
        client = self._client
        document = _parsed(text)
        if _lookup(document, (*self._group(document), name)) is None:
            return text
        group = self._group(document)
        text = jsonc.remove_member(text, (*group, name))
        question = client.question
        if question is not None and client.reference is not None and client.reference not in text:
            text = jsonc.remove_item(text, question.path, dict(question.value))
            text = _without_shell(text, question.path)
        for length in range(len(group), 0, -1):
            text = _without_shell(text, group[:length])
        return text

    def _group(self, document: JsonValue) -> tuple[str, ...]:
        """Return the path of the table of servers in this file."""
        newer = self._client.newer_group
        held = _lookup(document, newer) if newer is not None else None
        # A server may have this name, too; unlike the table, it has a `type`.
        if newer is None or not isinstance(held, dict) or isinstance(_lookup(held, ("type",)), str):
            return self._client.group
        return newer


def _merged_text(text: str, path: Sequence[str], entry: Entry) -> str:
    """Set the keys of the entry, and keep all others."""
    if not isinstance(_lookup(jsonc.parse(text), path), dict):
        return jsonc.set_member(text, path, entry)
    for key, value in entry.items():
        if isinstance(value, dict):
            text = _merged_text(text, (*path, key), value)
        else:
            text = jsonc.set_member(text, (*path, key), value)
    return text


def _without_shell(text: str, path: Sequence[str]) -> str:
    """Return the text without a member, if it is empty and contains no comment."""
    if _lookup(jsonc.parse(text), path) not in ({}, []):
        return text
    left = jsonc.remove_member(text, path)
    marks = ("//", "/*")
    return text if any(left.count(one) != text.count(one) for one in marks) else left


def is_shell(text: str) -> bool:
    """Whether a file is empty: it has no settings and no comments."""
    return "".join(text.strip("\ufeff").split()) in ("", "{}")


def _is_blank(text: str) -> bool:
    return not text.strip("\ufeff \t\r\n")


def _parsed(text: str) -> JsonValue:
    return {} if _is_blank(text) else jsonc.parse(text)


def _lookup(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(document, dict):
            return None
        document = cast("dict[str, Any]", document).get(key)
    return document
