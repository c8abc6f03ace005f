"""The two kinds of files that clients keep servers in: what entry is there, set it, remove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from pydantic import JsonValue

from . import jsonc, toml_file
from .clients import Client, Entry, Start

__all__ = ["Document", "document_of"]


class Document(Protocol):
    """Knows where in a client's file the entry of a server is, and how it is written.

    Every method takes the whole text, which may be empty, and raises `ValueError` if it is not
    valid or cannot be edited.
    """

    def entry(self, text: str, name: str) -> Any:
        """Return what stands under a name; None if nothing does."""
        ...

    def with_entry(self, text: str, name: str, start: Start) -> str:
        """Return the text with our entry; what else somebody has added to it stays."""
        ...

    def without_entry(self, text: str, name: str) -> str:
        """Return the text without the entry."""
        ...


def document_of(client: Client) -> Document:
    """Return how to read and edit the file of a client."""
    return _Toml(client) if client.format == "toml" else _Json(client)


class _Toml:
    def __init__(self, client: Client) -> None:
        (self._group,) = client.group
        self._made = client.entry

    def entry(self, text: str, name: str) -> Any:
        return _lookup(toml_file.parse(text), (self._group, name))

    def with_entry(self, text: str, name: str, start: Start) -> str:
        return toml_file.set_table(text, self._group, name, self._made(start))

    def without_entry(self, text: str, name: str) -> str:
        return toml_file.remove_table(text, self._group, name)


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
        return _merged(text, (*group, name), entry)

    def without_entry(self, text: str, name: str) -> str:
        client = self._client
        document = _parsed(text)
        if _lookup(document, (*self._group(document), name)) is None:
            return text
        text = jsonc.remove_member(text, (*self._group(document), name))
        question = client.question
        if question is None or client.reference is None or client.reference in text:
            return text
        return jsonc.remove_item(text, question.path, dict(question.value))

    def _group(self, document: JsonValue) -> tuple[str, ...]:
        """Return where servers are in this file."""
        newer = self._client.newer_group
        held = _lookup(document, newer) if newer is not None else None
        # A server may be called like that, too; it has a type.
        if newer is None or not isinstance(held, dict) or isinstance(_lookup(held, ("type",)), str):
            return self._client.group
        return newer


def _merged(text: str, path: Sequence[str], entry: Entry) -> str:
    """Set what the entry says, and keep what else is there."""
    if not isinstance(_lookup(jsonc.parse(text), path), dict):
        return jsonc.set_member(text, path, entry)
    for key, value in entry.items():
        if isinstance(value, dict):
            text = _merged(text, (*path, key), value)
        else:
            text = jsonc.set_member(text, (*path, key), value)
    return text


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
