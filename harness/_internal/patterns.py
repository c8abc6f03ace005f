r"""Patterns with linear time: regular expressions (RE2), and globs for names and paths.

Regular expressions may come from untrusted users. With RE2, neither compiling nor searching can
take long or need much memory, and other threads run during a search. `linear_test` accepts
expressions for `re` and translates the syntax. Two differences remain: `\b` and `\B` know only
ASCII letters, and features that RE2 lacks are refused.

The glob library is imported only for real patterns: the import takes a fiftieth of a server's
start, and most names are plain. Matching a path is fast, too. The library alone would try every
position for each `**`, so five of them and a deep path would take minutes. But between two `**` the
number of names is fixed, and the first match leaves the most names for the rest of the pattern. So
no other position has to be tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from . import clean_text

__all__ = ["LinearPattern", "PatternError", "fits", "linear_pattern", "linear_test", "settled"]


MAX_MEMORY = 2 << 20
"""Maximum memory of an expression in bytes. Larger ones fail after a few milliseconds. The largest
allowed one takes 40 ms to compile, during which nothing else runs."""


class PatternError(ValueError):
    """RE2 refused the expression; the text is RE2's message, such as `missing ): (a`."""


class LinearPattern(Protocol):
    """Compiled expression that searches in linear time. It has no groups."""

    def search(self, text: bytes) -> LinearMatch | None:
        """Return the first match in UTF-8."""
        ...

    def fullmatch(self, text: bytes) -> LinearMatch | None:
        """Return the match if the whole text matches, else None."""
        ...


class LinearMatch(Protocol):
    """A match of an expression."""

    def span(self) -> tuple[int, int]:
        """Return start and end in bytes."""
        ...


def linear_pattern(pattern: str, *, ignore_case: bool = False) -> LinearPattern:
    r"""Return the compiled expression in RE2's dialect: `\w`, `\d`, `\s` and `\b` are ASCII-only.

    Raises:
        PatternError: It is not valid, or too large.
    """
    module: Any = import_module("re2")  # has no types; imported late to start faster
    options = module.Options()
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return cast(LinearPattern, module.compile(pattern, options))
    except UnicodeEncodeError as error:
        raise PatternError("half of a surrogate pair is not text") from error
    except module.error as error:
        said = error.args[0]
        raise PatternError(said.decode() if isinstance(said, bytes) else str(said)) from error
    finally:
        module.purge()  # otherwise it keeps the last 128 with their search caches


_TOKEN = re.compile(
    r"\\(?:u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|x(?P<x>[0-9a-fA-F]{2})|(?P<escape>.))"
    r"|\{,(?P<most>\d+)\}|(?P<char>.)",
    re.DOTALL,
)
_LEADING_FLAGS = re.compile(r"(?:\(\?[aimsux]+\))*")
_LINES_HERE = re.compile(r"\(\?[a-z]*m[a-z-]*:")
_UNICODE = {"d": r"\p{Nd}", "w": r"\p{L}\p{N}_", "s": r"\t-\r\x1c-\x20\x{85}\p{Z}"}
_ASCII = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t-\r "}
_ANYTHING = [{rf"\{one}", rf"\{one.upper()}"} for one in "dws"]


def linear_test(pattern: re.Pattern[str], *, whole: bool = False) -> Callable[[str], bool]:
    """Return a function that tests whether a text matches.

    Args:
        pattern: The expression.
        whole: Whether it must match the whole text.

    Raises:
        PatternError: It cannot be matched in linear time.
    """
    if not isinstance(pattern.pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PatternError("it is of bytes; write text")
    if pattern.flags & re.VERBOSE:
        raise PatternError("(?x) and re.VERBOSE are not known")
    made = linear_pattern(_translated(pattern, whole=whole))
    match = made.fullmatch if whole else made.search
    return lambda text: match(_encoded(text)) is not None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates; no expression needs them
        return clean_text(text).encode()


def _translated(pattern: re.Pattern[str], *, whole: bool) -> str:
    """Return an expression of `re` translated for RE2."""
    text = pattern.pattern
    letters = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "m"}
    flags = "".join(letter for flag, letter in letters.items() if pattern.flags & flag)
    kinds = _ASCII if pattern.flags & re.ASCII else _UNICODE
    end = r"\z" if whole else r"(?:\n?\z)"  # `$` of `re` is also before a last line break
    if "m" not in flags and _LINES_HERE.search(text):
        raise PatternError("(?m:…) is for a part of it; put (?m) at its beginning")
    parts = [f"(?{flags})" if flags else ""]
    leading = _LEADING_FLAGS.match(text)
    place = leading.end() if leading else 0
    while found := _TOKEN.match(text, place):
        place = found.end()
        if found[0] == "[":
            made, place = _set(text, place, kinds)
            parts.append(made)
        elif found[0] == "$" and "m" not in flags:
            if text[place : place + 1] not in ("", ")", "|"):
                raise PatternError("something comes after $, the end of the text")
            parts.append(end)
        elif found["most"]:
            parts.append(f"{{0,{found['most']}}}")
        else:
            parts.append(_outside(found, kinds))
    return "".join(parts)


def _outside(found: re.Match[str], kinds: dict[str, str]) -> str:
    """Return the translation of a token outside a character set."""
    escape = found["escape"]
    if escape is None:
        return _character(found)
    if escape.lower() in kinds:
        return f"[{'^' if escape.isupper() else ''}{kinds[escape.lower()]}]"
    if escape == "Z":
        return r"\z"
    return found[0] if escape in "AbBafnrtv0123456789N" else _code(escape)


def _set(text: str, place: int, kinds: dict[str, str]) -> tuple[str, int]:
    """Return the translation of a character set after its `[`, and the position of its end.

    Raises:
        PatternError: The set contains something that is not a set of characters.
    """
    negated = text.startswith("^", place)
    place += negated
    first, tokens = place, list[re.Match[str]]()
    while (found := _TOKEN.match(text, place)) and (found[0] != "]" or place == first):
        tokens.append(found)
        place = found.end()
    raw = {one[0] for one in tokens}
    if raw in _ANYTHING:
        members = r"\x{0}-\x{10FFFF}"
    elif len(raw) == 1 and (kind := kinds.get(tokens[0][0][1:].lower())) and tokens[0]["escape"]:
        members, negated = kind, negated != tokens[0][0][1:].isupper()
    else:
        members = "".join(_inside(one, kinds) for one in tokens)
    return f"[{'^' if negated else ''}{members}]", place + 1


def _inside(found: re.Match[str], kinds: dict[str, str]) -> str:
    """Return the translation of a token inside a character set."""
    escape = found["escape"]
    if escape is None:
        return rf"\{found[0]}" if found[0] in "[]" else _character(found)
    if escape in kinds:
        return kinds[escape]
    if escape == "D" and kinds is _UNICODE:
        return r"\P{Nd}"
    if escape in "DWS":
        raise PatternError(rf"\{escape} cannot be one of several in a set")
    if escape == "b":
        return r"\x08"
    return found[0] if escape in "afnrtv01234567N" else _code(escape)


def _character(found: re.Match[str]) -> str:
    code = found["u"] or found["U"] or found["x"]
    return found[0] if code is None else rf"\x{{{code}}}"


def _code(char: str) -> str:
    return rf"\x{{{ord(char):x}}}"


_WILD = frozenset("*?[\\")


def fits(name: str, patterns: str | Sequence[str]) -> bool:
    """Return whether a name matches a glob, or one of several; case-sensitive."""
    return any(_fits(name, one) for one in ([patterns] if isinstance(patterns, str) else patterns))


def _fits(name: str, pattern: str) -> bool:
    start = pattern.removesuffix("*")
    if not start or _WILD & set(start):
        from wcmatch import fnmatch

        return fnmatch.fnmatch(name, pattern, flags=fnmatch.CASE)
    return name == pattern if start == pattern else name.startswith(start)


_ANY_DEPTH = r"(?:(?!(?:[/]|^)(?:\.{1,2})(?:$|[/])).)*?"
"""Regular expression of `wcmatch` for `**` with `GLOBSTAR`, `DOTGLOB` and `FORCEUNIX`."""


def settled(expression: str) -> str:
    """Return an expression of `wcmatch.glob.translate`, changed so that `**` never backtracks."""
    first, *others = expression.split(_ANY_DEPTH)
    if len(others) < 2:
        return expression
    *middle, last = others
    return "".join([first, *(f"(?>{_ANY_DEPTH}{one})" for one in middle), _ANY_DEPTH, last])
