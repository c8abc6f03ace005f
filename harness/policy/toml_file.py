"""Policies in TOML: read strictly, and with the line of what is wrong."""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

from harness.policy.errors import PolicyError
from harness.policy.policy import Policy, ToolClass
from harness.policy.rules import Rule
from harness.policy.verdicts import Action

__all__ = [
    "PolicyText",
    "file_name",
    "file_text",
    "joined",
    "parse_policy",
    "parse_text",
    "read_policy",
]

MAX_BYTES = 1_000_000

_ACTIONS = get_args(Action)
_CLASSES = get_args(ToolClass)
_OTHER = "other"
_TOP = ("defaults", "rule")
_PATTERNS = ("tool", "path", "command", "server", "agent", "principal")
_KEYS = ("action", *_PATTERNS, "args", *_CLASSES, "reason")


def read_policy(paths: Sequence[str | os.PathLike[str]]) -> Policy:
    """Read a policy from files; see `Policy.from_toml`."""
    return joined([parse_text(file_text(path), file_name(path)) for path in map(Path, paths)])


def file_name(path: Path) -> str:
    """Return what reasons call a file: models and people read them, so not all of its path."""
    return path.name


def file_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        PolicyError: It cannot be read, is too long, or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PolicyError(
            f"policy {path} cannot be read: {error.strerror or error}. Name a readable TOML file."
        ) from error
    if len(data) > MAX_BYTES:
        raise PolicyError(f"{path}: more than {MAX_BYTES:,} bytes; that is no policy.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{path}:{line}: not UTF-8 text. Save the file as UTF-8.") from error


@dataclass(frozen=True, slots=True)
class PolicyText:
    """What one file says.

    Attributes:
        name: The file.
        rules: Its rules.
        defaults: Its defaults for classes of tools.
        other: Its default for other calls, or None.
    """

    name: str
    rules: Sequence[Rule]
    defaults: Mapping[ToolClass, Action]
    other: Action | None


def joined(texts: Sequence[PolicyText]) -> Policy:
    """Return the rules of several files in order; the first file that has a default sets it."""
    defaults: dict[ToolClass, Action] = {}
    for one in texts:
        defaults = {**one.defaults, **defaults}
    others: list[Action] = [one.other for one in texts if one.other is not None]
    everything: Action = "allow"
    return Policy(
        [rule for one in texts for rule in one.rules],
        others[0] if others else everything,
        defaults,
        " and ".join(one.name for one in texts) or "the policy",
    )


def parse_policy(text: str, name: str) -> Policy:
    """Read a policy from text; see `Policy.parse`."""
    return joined([parse_text(text, name)])


def parse_text(text: str, name: str) -> PolicyText:
    """Read what one file says.

    Raises:
        PolicyError: It is not valid; the text names the line.
    """
    try:
        data = tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        place = f"{name}:{found[1]}" if found else name
        raise PolicyError(f"{place}: not valid TOML: {error}") from error
    return _Reader(text, name).read(data)


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self._lines = text.splitlines()
        self._name = name
        heads = [at for at, line in enumerate(self._lines) if re.match(r"\s*\[", line)]
        self._heads = [*heads, len(self._lines)]

    def read(self, data: Mapping[str, object]) -> PolicyText:
        everywhere = range(len(self._lines))
        for key in data:
            if key not in _TOP:
                self._unknown(key, _TOP, everywhere)
        given = data.get("defaults", {})
        place = self._section("defaults", 0)
        if not isinstance(given, dict):
            self._fail("defaults must be a table: [defaults]", place, "defaults")
        defaults: dict[str, Action] = {}
        for key, value in cast(dict[str, object], given).items():
            if key not in (*_CLASSES, _OTHER):
                self._unknown(key, (*_CLASSES, _OTHER), place)
            defaults[key] = self._action(key, value, place)
        other = defaults.pop(_OTHER, None)
        rules = data.get("rule", [])
        tables = cast(list[object], rules) if isinstance(rules, list) else [rules]
        if not all(isinstance(one, dict) for one in tables) or not isinstance(rules, list):
            self._fail("rules are tables of their own: [[rule]]", everywhere, "rule")
        made = [self._rule(at, cast(dict[str, object], one)) for at, one in enumerate(tables)]
        return PolicyText(self._name, made, cast(dict[ToolClass, Action], defaults), other)

    def _rule(self, at: int, given: Mapping[str, object]) -> Rule:
        place = self._section("rule", at)
        for key in given:
            if key not in _KEYS:
                self._unknown(key, _KEYS, place)
        if "action" not in given:
            self._fail(f"the rule has no action; add one of {_choices(_ACTIONS)}", place, "")
        self._action("action", given["action"], place)
        values: dict[str, Any] = {}
        for key, value in given.items():
            values[key] = self._value(key, value, place)
        source = f"rule {at + 1} of {self._name}"
        try:
            return Rule(**values, source=source)
        except PolicyError as error:
            key = str(error).split(" ", 1)[0]
            self._fail(str(error), place, key if key in _KEYS else "")

    def _value(self, key: str, value: object, place: range) -> object:
        if key in _PATTERNS:
            texts = tuple(cast(list[object], value)) if isinstance(value, list) else (value,)
            if not texts or not all(isinstance(one, str) for one in texts):
                self._fail(f"{key} must be a text, or a list of texts; got {value!r}", place, key)
            return texts if isinstance(value, list) else value
        if key in _CLASSES and not isinstance(value, bool):
            self._fail(f"{key} must be true or false; got {value!r}", place, key)
        if key == "reason" and not isinstance(value, str):
            self._fail(f"reason must be a text; got {value!r}", place, key)
        if key != "args":
            return value
        if not isinstance(value, dict) or not value:
            self._fail(f"args must be a table of patterns by argument; got {value!r}", place, key)
        named = _dotted(cast(dict[str, object], value))
        return {name: self._argument(name, one, place) for name, one in named}

    def _argument(self, name: str, value: object, place: range) -> str | re.Pattern[str]:
        if isinstance(value, str):
            return value
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        table = cast(dict[str, object], value) if isinstance(value, dict) else {}
        expression = table.get("regex")
        if not isinstance(expression, str):
            self._fail(
                f'args.{name} must be a glob, a number, true, false or {{ regex = "…" }}; '
                f"got {value!r}",
                place,
                "args",
            )
        try:
            return re.compile(expression, re.DOTALL)
        except (re.error, OverflowError, RecursionError) as error:
            self._fail(f"args.{name}: the regular expression is wrong: {error}", place, "args")

    def _action(self, key: str, value: object, place: range) -> Action:
        if value not in _ACTIONS:
            self._fail(f"{key} = {value!r} is not one of {_choices(_ACTIONS)}", place, key)
        return cast(Action, value)

    def _unknown(self, key: str, known: Sequence[str], place: range) -> NoReturn:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        self._fail(f"unknown key {key!r}{hint} Accepted: {', '.join(known)}", place, key)

    def _fail(self, problem: str, place: range, key: str) -> NoReturn:
        line = self._line(place, key)
        raise PolicyError(f"{self._name}{f':{line}' if line else ''}: {problem.rstrip('.')}.")

    def _section(self, name: str, at: int) -> range:
        """Return the lines of a table, as well as they can be told from the text."""
        head = re.compile(rf"\s*(?:\[\[\s*{name}\s*\]\]|\[\s*{name}\s*\])")
        heads = [line for line in self._heads[:-1] if head.match(self._lines[line])]
        if at >= len(heads):
            return range(len(self._lines))
        inner = re.compile(rf"\s*\[+\s*{name}\s*\.")
        following = [
            line
            for line in self._heads
            if line > heads[at] and (line == len(self._lines) or not inner.match(self._lines[line]))
        ]
        return range(heads[at], following[0])

    def _line(self, place: range, key: str) -> int | None:
        quoted = re.escape(key)
        entry = re.compile(rf"""\s*\[*\s*["']?{quoted}["']?\s*(?:[=.\]]|$)""")
        inner = re.compile(rf"""\s*\[+[^\]]*\.\s*["']?{quoted}["']?\s*\]""")
        for line in place if key else ():
            if entry.match(self._lines[line]) or inner.match(self._lines[line]):
                return line + 1
        return place.start + 1 if self._lines else None


def _dotted(table: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return the entries of a table, those of inner tables by dotted names."""
    found: list[tuple[str, object]] = []
    for name, value in table.items():
        inner = cast(dict[str, object], value) if isinstance(value, dict) else {}
        if inner and set(inner) != {"regex"}:
            found += [(f"{name}.{key}", one) for key, one in _dotted(inner)]
        else:
            found.append((name, cast(object, value)))
    return found


def _choices(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
