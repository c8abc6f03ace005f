r"""Expressions of `grep` and `.gitignore`, which always match in linear time.

The dialect of `grep` is that of RE2, and of ripgrep where the two agree: look-around and
backreferences are refused by name. Classes cover all of Unicode, like ripgrep's: `\w` matches
letters, marks, decimal digits and letter numbers of any script, and connectors such as `_`. RE2 has
`\b` for ASCII only, so a line with other characters is searched in a marked form: two marks around
each character tell if it is part of a word.

In a pattern of `.gitignore`, the match of a star ends at the first place where the rest up to the
next star matches: a later place could only leave less for what follows. So no star is tried twice,
and a comparison takes at most the length of the path times the length of the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from unicodedata import category

from .._internal.patterns import LinearPattern, PatternError, linear_pattern
from .._internal.records import record
from ..errors import ToolError

__all__ = ["_MOST_CHARS", "Expression", "gitignore_expression", "line_expression"]

MAX_EXPRESSION = 2_000
"""The most characters of an expression; answers repeat it."""

_WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
_OTHER_CATEGORIES = ("No", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Z", "C")
_SPACE = (
    r"\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
)
_NO_SPACE = (
    r"\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}"
    r"\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF}"
)
_CLASSES = {
    "d": r"\p{Nd}",
    "D": r"\P{Nd}",
    "w": "".join(rf"\p{{{one}}}" for one in ("L", "M", "Nd", "Nl", "Pc")),
    "W": "".join(rf"\p{{{one}}}" for one in _OTHER_CATEGORIES),
    "s": _SPACE,
    "S": _NO_SPACE,
}

_TOKEN = re.compile(
    r"""
    (?P<quoted>\\Q.*?(?:\\E|\Z))
    |(?P<around>\(\?<?[=!])
    |(?P<back>\\[1-9k]|\\g[<{]|\(\?P=)
    |(?P<atomic>\(\?>)
    |(?P<possessive>(?:[*+?]|\{(?:[0-9]+,?|,)[0-9]*\})\+)
    |(?P<conditional>\(\?\()
    |(?P<recursion>\(\?(?:R|&|P>|[0-9]))
    |(?P<place>\\[bB])
    |(?P<at_most>\{,(?=[0-9]+\}))
    |(?P<repeat>[*+?]|\{[0-9]+(?:,[0-9]*)?\})
    |(?P<structure>\(\?P?<\w+>|\(\?[A-Za-z-]*[:)]|[()|^$]|\\[Az])
    |(?P<end>\\Z)
    |(?P<set>\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*+\])
    |(?P<one>\\[pP](?:\{[^}]*\}|.)|\\x(?:\{[^}]*\}|[0-9A-Fa-f]{2})|\\0[0-7]{0,2}
        |\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_SET = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)

_INSTEAD = {
    "around": (
        "look-ahead and look-behind, (?=…), (?!…), (?<=…) and (?<!…)",
        "Search for the text together with what is around it, such as foo\\(.*bar; to leave lines "
        "out, search for the wider expression and pass over them",
    ),
    "back": (
        "backreferences, such as \\1",
        "Write the alternatives out, such as (?:'[^']*'|\"[^\"]*\")",
    ),
    "atomic": ("atomic groups, (?>…)", "Write (?:…): no expression takes long here"),
    "possessive": (
        "possessive repeats, such as a*+",
        "Write a*: no expression takes long here. A plus sign itself is \\+",
    ),
    "conditional": ("conditions, (?(…)…|…)", "Write the alternatives out, such as (?:a…b|c…d)"),
    "recursion": ("recursion, such as (?R)", "Write out as many levels as are needed"),
}


@record
class Expression:
    r"""A compiled expression.

    Attributes:
        text: The expression as it was given.
        ignore_case: Whether it matches in any case.
        plain: The expression for lines of ASCII; for all lines if there is no `marked`.
        marked: The expression for other lines, in their marked form, if it contains `\b` or `\B`.
    """

    text: str
    ignore_case: bool
    plain: LinearPattern
    marked: LinearPattern | None

    def find(self, line: str) -> int | None:
        """Return the position of a match in a line: its beginning, in marked form its end."""
        if self.marked is None or line.isascii():
            data = line.encode(errors="replace")
            match = self.plain.search(data)
            return None if match is None else len(data[: match.span()[0]].decode(errors="ignore"))
        data = "".join(map(_marked, line)).encode(errors="replace")
        match = self.marked.search(data)
        return None if match is None else len(data[: match.span()[1]].decode(errors="ignore")) // 3


def line_expression(pattern: str, *, ignore_case: bool = False) -> Expression:
    """Return the compiled expression.

    Raises:
        ToolError: It is empty, not valid, too long or too large, or uses an unsupported feature.
    """
    if not pattern:
        raise ToolError("grep needs an expression, such as TODO or def \\w+")
    if len(pattern) > MAX_EXPRESSION:
        raise ToolError(
            f"the expression {pattern[:50]!r}… cannot be used: it has {len(pattern)} characters, "
            f"and the limit is {MAX_EXPRESSION}. Nothing was searched. Use a shorter one, or "
            "search several times."
        )
    tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(pattern)]
    for kind, token in tokens:
        if kind in _INSTEAD:
            what, instead = _INSTEAD[kind]
            raise ToolError(
                f"{pattern!r} cannot be searched for: {what}, are not supported (here: {token}). "
                f"Nothing was searched. {instead}."
            )
    places = any(kind == "place" for kind, _ in tokens)
    try:
        plain = linear_pattern(_written(tokens, str), ignore_case=ignore_case)
        marked = None
        if places:
            unit = _written(tokens, lambda one: f"(?:[-w]{one}[-w])")
            whole = rf"\A(?:[-w](?s:.)[-w])*?(?:{unit})"
            marked = linear_pattern(whole, ignore_case=ignore_case)
    except PatternError as error:
        raise _refused(pattern, str(error)) from error
    return Expression(pattern, ignore_case, plain, marked)


def _written(tokens: list[tuple[str, str]], one: Callable[[str], str]) -> str:
    """Return the expression for RE2, with `one` applied to each part that matches one character."""
    return "".join(_translated(kind, token, one) for kind, token in tokens)


def _translated(kind: str, token: str, one: Callable[[str], str]) -> str:
    match kind:
        case "quoted":
            text = token[2:].removesuffix(r"\E")
            return "".join(one(re.escape(char)) for char in text)
        case "at_most":
            return "{0,"
        case "end":
            return r"\z"
        case "set":
            return one(_IN_SET.sub(_in_set, token))
        case "one" if token[0] == "\\":
            known = _CLASSES.get(token[1:])
            negated = "^" if token == r"\W" else ""
            known = _CLASSES["w"] if negated else known
            return one(_escape(token[1:]) if known is None else f"[{negated}{known}]")
        case "one":
            return one(token)
        case _:
            return token


def _in_set(escape: re.Match[str]) -> str:
    if escape[1] == "b":
        return r"\x08"
    return _CLASSES.get(escape[1]) or _escape(escape[1])


def _escape(code: str) -> str:
    """Return an escape, without its backslash, as RE2 writes it."""
    return rf"\x{{{code[1:]}}}" if code[0] in "uU" and len(code) > 1 else f"\\{code}"


@lru_cache(4_096)
def _marked(char: str) -> str:
    return f"w{char}w" if category(char) in _WORD_CATEGORIES else f"-{char}-"


def _refused(pattern: str, why: str) -> ToolError:
    if "too large" in why:
        return ToolError(
            f"{pattern!r} cannot be searched for: it is too large. Nothing was searched; repeat "
            "less often, such as {1,20}, or use + and *."
        )
    if "repetition size" in why or re.search(r"bad repetition.*\{", why):
        why += "; at most 1,000 repeats are possible, those inside of repeats multiplied"
    return ToolError(
        f"{pattern!r} is not a valid regular expression: {why}. To look for the text as it is, use "
        f"{re.escape(pattern)!r}."
    )


_MOST_CHARS = 4_096
"""A pattern that is longer fits no path."""

_BRACKET_CLASSES = {
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


def gitignore_expression(pattern: str) -> str | None:
    """Return the expression that fits the paths, relative and without a slash at the end.

    Args:
        pattern: The pattern, without its `!`, and without a slash at its end or its beginning.

    Returns:
        An expression for `re.fullmatch`; None for a pattern that fits nothing.
    """
    if len(pattern) > _MOST_CHARS:
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

    None for a pattern that matches nothing: an unclosed set, or a set with an unknown class.
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
    """Return an expression for a star and the end of a name: the rest, if it ends like this."""
    if not last:
        return "[^/]*+"
    return f"(?>[^/]*{last}(?![^/]))"


def _set(pattern: str, place: int) -> tuple[str, int] | None:
    """Return the expression for a set that starts here, and its end; None if it is not a set."""
    negated = pattern[place : place + 1] in ("!", "^")
    found = _members(pattern, place + negated)
    if found is None:
        return None
    members, end = found
    if not members:
        return ("[^/]" if negated else "(?!)"), end
    return f"(?!/)[{'^' if negated else ''}{members}]", end


def _members(pattern: str, begin: int) -> tuple[str, int] | None:
    """Return the content of a set, as in an expression, and its end."""
    written: list[str] = []
    before, place = "", begin
    while place < len(pattern) and (pattern[place] != "]" or place == begin):
        named = _NAMED.match(pattern, place)
        if named is not None:
            if named[1] not in _BRACKET_CLASSES:
                return None
            written.append(_BRACKET_CLASSES[named[1]])
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
