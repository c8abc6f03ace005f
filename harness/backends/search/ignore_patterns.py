"""A pattern of a `.gitignore` file as a regular expression that cannot be made to take long.

Whatever a star stands for ends at the first place where what follows it fits: a later place could
only leave less for the rest. So no star is tried twice, and a comparison costs at most the length
of the path times that of the pattern; the file may be anybody's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

__all__ = ["MOST_CHARS", "expression_of"]

MOST_CHARS = 4_096
"""A pattern that is longer fits no path."""

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NAMED = re.compile(r"\[:([^\]]*):\]")
_AFTER_STARS = re.compile(r"[^*]")


def expression_of(pattern: str) -> str | None:
    """Return the expression that fits the paths, relative and without a slash at the end.

    Args:
        pattern: The pattern, without its `!`, and without a slash at its end or its beginning.

    Returns:
        An expression for `re.fullmatch`; None for a pattern that fits nothing.
    """
    if len(pattern) > MOST_CHARS:
        return None
    tokens = _tokens(pattern)
    if tokens is None:
        return None
    if tokens == ["**"]:
        return "(?s:.+)"
    names = [list(group) for slash, group in groupby(tokens, "/".__eq__) if not slash]
    if tokens.count("/") >= len(names):
        return None  # two slashes in a row
    runs: list[list[str]] = [[]]
    for name in names:
        if name != ["**"]:
            runs[-1].append(_name(name))
        else:
            runs.append([])
    if names[-1] == ["**"]:
        runs[-1].append("[^/]+(?:/[^/]+)*+")
    return _joined(["/".join(run) for run in runs])


def _joined(runs: Sequence[str]) -> str:
    """Return names with any number of directories between the runs of them."""
    first, *others = runs
    if not others:
        return f"(?s:{first})"
    *middle, last = others
    parts = [f"{first}/" if first else ""]
    # A run of names ends where its last one does, so the first place where it fits is enough.
    parts += [f"(?>(?:[^/]++/)*?{run}/)" for run in middle if run]
    parts.append(f"(?:[^/]++/)*?{last}")
    return f"(?s:{''.join(parts)})"


def _tokens(pattern: str) -> list[str] | None:
    """Return expressions for single characters, and `*`, `**` and `/` as they are.

    None for a pattern that fits nothing: a set without an end, or one of an unknown class.
    """
    tokens: list[str] = []
    place = 0
    while place < len(pattern):
        char = pattern[place]
        if char == "*":
            end = _AFTER_STARS.search(pattern, place)
            stop = end.start() if end else len(pattern)
            tokens.append("*" if stop == place + 1 else "**")
            place = stop
        elif char == "[":
            found = _set(pattern, place + 1)
            if found is None:
                return None
            tokens.append(found[0])
            place = found[1]
        elif char == "\\" and place + 1 == len(pattern):
            return None
        elif char == "\\":
            tokens.append(re.escape(pattern[place + 1]))
            place += 2
        else:
            tokens.append("[^/]" if char == "?" else re.escape(char))
            place += 1
    return tokens


def _name(tokens: Sequence[str]) -> str:
    """Return the expression for one name."""
    parts: list[str] = [""]
    for token in tokens:
        if token in ("*", "**"):
            parts.append("")
        else:
            parts[-1] += token
    first, *others = parts
    if not others:
        return first
    *middle, last = others
    return "".join([first, *(f"(?>[^/]*?{one})" for one in middle if one), _end(last)])


def _end(last: str) -> str:
    """Return what a star and the end of a name fit: the rest of the name, if it ends so."""
    if not last:
        return "[^/]*+"
    return f"(?>[^/]*{last}(?![^/]))"


def _set(pattern: str, place: int) -> tuple[str, int] | None:
    """Return the expression for a set that begins here, and where it ends; None if it is none."""
    negated = pattern[place : place + 1] in ("!", "^")
    found = _members(pattern, place + negated)
    if found is None:
        return None
    members, end = found
    if not members:
        return ("[^/]" if negated else "(?!)"), end
    return f"(?!/)[{'^' if negated else ''}{members}]", end


def _members(pattern: str, begin: int) -> tuple[str, int] | None:
    """Return what a set holds, as in an expression, and where it ends."""
    written: list[str] = []
    before, place = "", begin
    while place < len(pattern) and (pattern[place] != "]" or place == begin):
        named = _NAMED.match(pattern, place)
        if named is not None:
            if named[1] not in _CLASSES:
                return None
            written.append(_CLASSES[named[1]])
            before, place = "", named.end()
            continue
        is_range = pattern[place] == "-" and before and pattern[place + 1 : place + 2] not in "]"
        place += bool(is_range)
        place += pattern[place] == "\\"
        char = pattern[place : place + 1]
        if not is_range:
            written.append(re.escape(char))
        elif before <= char:
            written.append(f"{re.escape(before)}-{re.escape(char)}")
        before, place = "" if is_range else char, place + 1
    return None if place >= len(pattern) else ("".join(written), place + 1)
