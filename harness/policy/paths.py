"""Paths in the arguments of a call, in the forms that rules compare.

A rule that allows compares the canonical path exactly, and no path that could lead elsewhere. A
rule that denies or asks also compares a folded form, in which spellings are one that some file
system takes for one: case, Unicode forms, trailing dots and blanks, streams of a file.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, cast

from pydantic import JsonValue

__all__ = ["PathForms", "folded", "path_forms", "paths_in"]

_NAMES = frozenset(
    {
        "path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths",
        "dir", "dirs", "directory", "directories", "folder", "cwd", "workdir",
        "source", "src", "destination", "dest", "dst", "target", "from", "to",
    }
)  # fmt: skip
_ENDS = ("_path", "_paths", "_file", "_files", "_dir", "_directory", "_folder")
_FORMATS = ("path", "file-path", "directory-path")
_CACHED_CHARS = 1_024
_LOOSE = re.compile(r"[. ](?:/|$)|:")
_ENDING = re.compile(r"(?<=[^/. ])[. ]+(?=/|$)")
_STREAM = re.compile(r"(?<=[^/]{2}):[^/]*")


class PathForms(NamedTuple):
    """A path as rules see it; each form ends with a slash.

    Attributes:
        exact: In canonical form.
        folded: In a form that similar spellings share.
        sure: Whether it leads where it says: no `..`, no home directory, no NUL.
    """

    exact: str
    folded: str
    sure: bool


def path_forms(written: str) -> PathForms:
    """Return the forms of a path as somebody wrote it."""
    return _cached(written) if len(written) <= _CACHED_CHARS else _forms(written)


def _forms(written: str) -> PathForms:
    text = _unquoted(written[7:]) if written[:7].lower() == "file://" else written
    slashed = text.replace("\\", "/")
    sure = not (".." in slashed.split("/") or slashed.startswith("~") or "\0" in slashed)
    exact = posixpath.normpath("/" + slashed.lstrip("/"))
    loose = folded(exact)
    if _LOOSE.search(loose):
        loose = posixpath.normpath(_ENDING.sub("", _STREAM.sub("", loose)))
    return PathForms(_ended(exact), _ended(loose), sure)


def _unquoted(path: str) -> str:
    from urllib.parse import unquote  # few paths are addresses

    return unquote(path)


_cached = lru_cache(8_192)(_forms)


def _ended(path: str) -> str:
    return path if path.endswith("/") else path + "/"


def folded(text: str) -> str:
    """Return a path, or a glob over paths, in one case and one Unicode form."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).casefold()
        text = unicodedata.normalize("NFKC", text)
        text = "".join(one for one in text if unicodedata.category(one) != "Cf")
        text = text.replace("\\", "/")
        return posixpath.normpath(text.lower()) if text else text
    return text.lower()


def paths_in(
    args: Mapping[str, JsonValue], parameters: Mapping[str, JsonValue] | None
) -> Iterator[PathForms]:
    """Yield the paths among the arguments: by name, by the schema, and those left to a default."""
    properties = cast(
        Mapping[str, Mapping[str, JsonValue]], (parameters or {}).get("properties") or {}
    )
    for name, about in properties.items():
        if _is_path(name) or about.get("format") in _FORMATS:
            value = args[name] if name in args else about.get("default")
            yield from map(path_forms, _texts(value))
    for name, value in args.items():
        if name not in properties and _is_path(name):
            yield from map(path_forms, _texts(value))
        if isinstance(value, dict | list):
            yield from _nested(value)


def _nested(value: JsonValue) -> Iterator[PathForms]:
    if isinstance(value, dict):
        for name, one in value.items():
            if _is_path(name):
                yield from map(path_forms, _texts(one))
            if isinstance(one, dict | list):
                yield from _nested(one)
    elif isinstance(value, list):
        for one in value:
            yield from _nested(one)


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        for one in cast(Iterable[JsonValue], inner):
            yield from _texts(one)


@lru_cache(4_096)
def _is_path(name: str) -> bool:
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return plain in _NAMES or plain.endswith(_ENDS)
