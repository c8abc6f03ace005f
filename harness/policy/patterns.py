"""Patterns of rules: globs and expressions for names, paths and arguments, compiled once.

Names (tools, servers, principals, values of arguments) are plain globs: `*` matches anything. Paths
and agents are globs of steps: `*` matches within a step, `**` across steps, and `/docs/**` also
matches `/docs`. Regular expressions are for arguments, which can be any text of a model.

A rule that allows compares the exact canonical path, and never matches a path that could lead
elsewhere. A rule that denies or asks also compares a folded form, in which spellings that some file
system treats as equal are equal: case, Unicode forms, trailing dots and spaces, streams of a file.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from pydantic import JsonValue

from .._internal.patterns import PatternError, linear_test, settled
from ..errors import AgentBuildError

__all__ = [
    "PathForms",
    "PolicyError",
    "StepsPattern",
    "any_of",
    "argument_test",
    "expanded",
    "folded",
    "literal_in",
    "name_pattern",
    "path_forms",
    "paths_in",
    "steps_pattern",
]


class PolicyError(AgentBuildError):
    """A policy is not valid; the text names the file, the line and what is accepted."""


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
        exact: The canonical form.
        folded: A form that is equal for similar spellings.
        sure: Whether it leads where it seems to: no `..`, no home directory, no NUL.
    """

    exact: str
    folded: str
    sure: bool


def path_forms(written: str) -> PathForms:
    """Return the forms of a written path."""
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
    """Return a path, or a path glob, in a uniform case and Unicode form."""
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
    """Yield the paths in the arguments: by name, by the schema, and from defaults."""
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


_MOST = 1_000


@lru_cache(4_096)
def name_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a name glob to an expression for `match`."""
    from wcmatch import fnmatch  # few processes have a policy

    return _joined(fnmatch.translate(pattern, flags=fnmatch.CASE | fnmatch.DOTMATCH)[0])


class StepsPattern:
    """A path glob, compiled at its first use, since the literal part of most never matches."""

    __slots__ = ("_compiled", "_expressions")

    def __init__(self, expressions: list[str]) -> None:
        self._expressions = expressions
        self._compiled: re.Pattern[str] | None = None

    def match(self, text: str) -> re.Match[str] | None:
        """Match the beginning of a path with a slash added."""
        if self._compiled is None:
            self._compiled = _joined(self._expressions)
        return self._compiled.match(text)


@lru_cache(4_096)
def steps_pattern(pattern: str) -> StepsPattern:
    """Compile a path glob to an expression for `match` of the path with a slash added.

    Raises:
        PolicyError: Its braces expand to too many patterns.
    """
    from wcmatch import glob
    from wcmatch._wcparse import PatternLimitException

    flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
    try:
        return StepsPattern([settled(one) for one in glob.translate(pattern, flags=flags)[0]])
    except PatternLimitException as error:
        raise PolicyError(
            f"path {pattern!r} stands for too many patterns; write several rules"
        ) from error


def expanded(pattern: str) -> Sequence[str]:
    """Expand the braces of a path glob."""
    import bracex

    return bracex.expand(pattern, keep_escapes=True, limit=_MOST)


def _joined(expressions: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in expressions))


def any_of(
    patterns: Sequence[str], make: Callable[[str], re.Pattern[str] | StepsPattern]
) -> Callable[[str], bool]:
    """Tell whether one of the patterns matches a text."""
    globs = [(literal_in(one), make(one).match) for one in patterns]
    literal, match = globs[0]
    if len(globs) == 1:
        return lambda text: literal in text and match(text) is not None

    return lambda text: any(part in text and test(text) for part, test in globs)


_META = re.compile(r"\{[^{}]*\}|\[[^\]]*\]|[*?]+")


def literal_in(pattern: str) -> str:
    """Return the longest text that every match of a glob contains, or an empty one.

    Searching for it first avoids most expressions: a policy has many rules, and few match a call.
    """
    rest = _META.sub("\0", pattern.removeprefix("**/"))  # which may stand for nothing
    if re.search(r"[\\{}\[\]]|//", rest):
        return ""
    return max(rest.split("\0"), key=len)


_ADVICE = (
    r"Rules do not support look-around such as (?=…) or (?<!…), references such as \1, atomic or "
    "possessive repeats, or counts above 1000, because a crafted argument could make them run "
    "forever. Write a simpler expression, or several rules: the first one that matches decides"
)


@lru_cache(1_024)
def argument_test(pattern: re.Pattern[str], *, whole: bool) -> Callable[[str], bool]:
    """Return a function that tests texts.

    Args:
        pattern: The expression.
        whole: Whether it must match the whole text, as in rules that allow.

    Raises:
        PolicyError: It cannot be matched in linear time; the text says what to write instead.
    """
    try:
        return linear_test(pattern, whole=whole)
    except PatternError as error:
        raise PolicyError(
            f"the regular expression {pattern.pattern!r} cannot be used: {error}. {_ADVICE}"
        ) from error
