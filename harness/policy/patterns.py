"""Patterns of rules: names, paths and arguments, compiled once, and the error of a wrong one.

Names (tools, servers, principals, values of arguments) are plain globs: `*` stands for anything.
Paths and agents are globs of steps: `*` stays within a step, `**` crosses them, and `/docs/**`
covers `/docs` too. Regular expressions are for arguments, which are whatever a model wrote.

A rule that allows compares the canonical path exactly, and no path that could lead elsewhere. A
rule that denies or asks also compares a folded form. In it, spellings that some file system treats
as one are one: case, Unicode forms, trailing dots and blanks, streams of a file.
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


_MOST = 1_000


@lru_cache(4_096)
def name_pattern(pattern: str) -> re.Pattern[str]:
    """Return a glob over a name as an expression; for `match`."""
    from wcmatch import fnmatch  # few have a policy

    return _joined(fnmatch.translate(pattern, flags=fnmatch.CASE | fnmatch.DOTMATCH)[0])


class StepsPattern:
    """A glob over a path, compiled when it is first tried: of most no literal part ever fits."""

    __slots__ = ("_compiled", "_expressions")

    def __init__(self, expressions: list[str]) -> None:
        self._expressions = expressions
        self._compiled: re.Pattern[str] | None = None

    def match(self, text: str) -> re.Match[str] | None:
        """Match the beginning of a path, to which a slash was added."""
        if self._compiled is None:
            self._compiled = _joined(self._expressions)
        return self._compiled.match(text)


@lru_cache(4_096)
def steps_pattern(pattern: str) -> StepsPattern:
    """Return a glob over a path as an expression; for `match` of the path with a slash added.

    Raises:
        PolicyError: Its braces stand for too many patterns.
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
    """Return the globs that a glob over a path stands for, without braces."""
    import bracex

    return bracex.expand(pattern, keep_escapes=True, limit=_MOST)


def _joined(expressions: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in expressions))


def any_of(
    patterns: Sequence[str], make: Callable[[str], re.Pattern[str] | StepsPattern]
) -> Callable[[str], bool]:
    """Return whether one of the patterns matches a text."""
    globs = [(literal_in(one), make(one).match) for one in patterns]
    literal, match = globs[0]
    if len(globs) == 1:
        return lambda text: literal in text and match(text) is not None

    return lambda text: any(part in text and test(text) for part, test in globs)


_META = re.compile(r"\{[^{}]*\}|\[[^\]]*\]|[*?]+")


def literal_in(pattern: str) -> str:
    """Return the longest text that is in all that a glob matches; maybe none.

    Looking for it first spares most expressions: a policy has many rules, and few fit a call.
    """
    rest = _META.sub("\0", pattern.removeprefix("**/"))  # which may stand for nothing
    if re.search(r"[\\{}\[\]]|//", rest):
        return ""
    return max(rest.split("\0"), key=len)


_ADVICE = (
    r"Rules take no look-around such as (?=…) or (?<!…), no references such as \1, no atomic or "
    "possessive repeats, no counts above 1000: these can take for ever on an argument that is made "
    "for it. Write a simpler expression, or several rules, of which the first that matches decides"
)


@lru_cache(1_024)
def argument_test(pattern: re.Pattern[str], *, whole: bool) -> Callable[[str], bool]:
    """Return a test of texts.

    Args:
        pattern: The expression.
        whole: Whether it must match all of a text, as in rules that allow.

    Raises:
        PolicyError: It cannot be matched in linear time; the text says what to write instead.
    """
    try:
        return linear_test(pattern, whole=whole)
    except PatternError as error:
        raise PolicyError(
            f"the regular expression {pattern.pattern!r} cannot be used: {error}. {_ADVICE}"
        ) from error
