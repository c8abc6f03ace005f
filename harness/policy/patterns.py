"""Patterns of rules, compiled once.

Names (tools, servers, principals, values of arguments) are plain globs: `*` stands for anything.
Paths and agents are globs of steps: `*` stays within a step, `**` crosses them, and `/docs/**`
covers `/docs` too. Regular expressions are for arguments, which are whatever a model wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from .._internal.patterns import PatternError, linear_test, settled
from .errors import PolicyError

__all__ = ["any_of", "argument_test", "expanded", "literal_in", "name_pattern", "steps_pattern"]

_MOST = 1_000


@lru_cache(4_096)
def name_pattern(pattern: str) -> re.Pattern[str]:
    """Return a glob over a name as an expression; for `match`."""
    from wcmatch import fnmatch  # few have a policy

    return _joined(fnmatch.translate(pattern, flags=fnmatch.CASE | fnmatch.DOTMATCH)[0])


@lru_cache(4_096)
def steps_pattern(pattern: str) -> re.Pattern[str]:
    """Return a glob over a path as an expression; for `match` of the path with a slash added.

    Raises:
        PolicyError: Its braces stand for too many patterns.
    """
    from wcmatch import glob
    from wcmatch._wcparse import PatternLimitException

    flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
    try:
        return _joined([settled(one) for one in glob.translate(pattern, flags=flags)[0]])
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
    patterns: Sequence[str], make: Callable[[str], re.Pattern[str]]
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
