"""Policy parsing: reads rules from TOML files and tables, strictly.

Errors name the line in a TOML file, or the place in a table.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, cast, get_args

from .._internal.records import record
from ..definitions.confined_files import ConfinedFiles
from ..definitions.frontmatter import DefinitionError
from .access_request import Action, ToolClass
from .patterns import PolicyError
from .rules import Rule

__all__ = [
    "Locate",
    "PolicyText",
    "file_name",
    "file_text",
    "parse_text",
    "read_rules",
    "read_texts",
]


Locate: TypeAlias = Callable[[str, int, str], str]
"""Returns the place of a key, such as `p.toml:3`, from its table (`rule`, `defaults`, or empty for
the whole), the table's number from 0, and the key, which may be empty."""

_ACTIONS = get_args(Action)
_ACTION_NAMES = ", ".join(f'"{action}"' for action in _ACTIONS)
_CLASSES = get_args(ToolClass)
_OTHER = "other"
_TOP = ("defaults", "rule")
_PATTERNS = ("tool", "path", "command", "server", "agent", "principal")
_SWITCHES = (*_CLASSES, "each_time")
_KEYS = ("action", *_PATTERNS, "args", *_SWITCHES, "reason")
_MAX_SHOWN = 200


@record
class PolicyText:
    """The rules and defaults of one file, as written.

    Attributes:
        name: The file.
        rules: Its rules.
        defaults: Its defaults for classes of tools.
        other: Its default for all other calls, or None.
    """

    name: str
    rules: Sequence[Rule]
    defaults: Mapping[ToolClass, Action]
    other: Action | None


def read_rules(rules: object, source: str, default: Action) -> PolicyText:
    """Read a list of rules; see `Policy.from_rules`."""
    reader = _Reader(source, lambda table, at, _: f"{source}: rule {at + 1}" if table else source)
    made = reader.rules(rules, "rules must be a list of tables")
    return PolicyText(source, made, {}, reader.action("default", default))


class _Reader:
    def __init__(self, name: str, locate: Locate) -> None:
        self._name = name
        self._locate = locate

    def read(self, data: Mapping[str, object]) -> PolicyText:
        for key in data:
            if key not in _TOP:
                self._unknown(key, _TOP, "")
        given = _table(data.get("defaults", {}))
        if given is None:
            self._fail("defaults must be a table: [defaults]", "defaults", key="defaults")
        defaults: dict[str, Action] = {}
        for key, value in given.items():
            if key not in (*_CLASSES, _OTHER):
                self._unknown(key, (*_CLASSES, _OTHER), "defaults")
            defaults[key] = self.action(key, value, "defaults")
        other = defaults.pop(_OTHER, None)
        made = self.rules(data.get("rule", []), "rules are tables of their own: [[rule]]")
        return PolicyText(self._name, made, cast(dict[ToolClass, Action], defaults), other)

    def rules(self, given: object, wanted: str) -> Sequence[Rule]:
        """Return the rules from a list of tables; `wanted` names the expected form for errors."""
        items = _items(given)
        tables = [table for one in items or () if (table := _table(one)) is not None]
        if items is None or len(tables) < len(items):
            self._fail(f"{wanted}; got {_shown(given)}", key="rule")
        return [self._rule(at, one) for at, one in enumerate(tables)]

    def _rule(self, at: int, given: Mapping[str, object]) -> Rule:
        for key in given:
            if key not in _KEYS:
                self._unknown(key, _KEYS, "rule", at)
        if "action" not in given:
            self._fail(f"the rule has no action; add one of {_ACTION_NAMES}", "rule", at)
        self.action("action", given["action"], "rule", at)
        values: dict[str, Any] = {key: self._value(key, one, at) for key, one in given.items()}
        try:
            return Rule(**values, source=f"rule {at + 1} of {self._name}")
        except PolicyError as error:
            key = re.split("[ .]", str(error), maxsplit=1)[0]
            self._fail(str(error), "rule", at, key if key in _KEYS else "")

    def _value(self, key: str, value: object, at: int) -> object:
        if key in _PATTERNS:
            items = _items(value)
            texts = (value,) if items is None else tuple(items)
            if not texts or not all(isinstance(one, str) for one in texts):
                wanted = f"{key} must be a text, or a list of texts"
                self._fail(f"{wanted}; got {_shown(value)}", "rule", at, key)
            return value if items is None else texts
        if key in _SWITCHES and not isinstance(value, bool):
            self._fail(f"{key} must be true or false; got {_shown(value)}", "rule", at, key)
        if key == "reason" and not isinstance(value, str):
            self._fail(f"reason must be a text; got {_shown(value)}", "rule", at, key)
        if key != "args":
            return value
        table = _table(value)
        if not table:
            wanted = "args must be a table of patterns by argument"
            self._fail(f"{wanted}; got {_shown(value)}", "rule", at, key)
        try:
            named = _dotted(table)
        except RecursionError:
            self._fail("args is nested too deeply", "rule", at, key)
        return {name: self._argument(name, one, at) for name, one in named}

    def _argument(self, name: str, value: object, at: int) -> str | re.Pattern[str]:
        if isinstance(value, str):
            return value
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        expression = (_table(value) or {}).get("regex")
        if not isinstance(expression, str):
            wanted = f'args.{name} must be a glob, a number, true, false or {{ regex = "…" }}'
            self._fail(f"{wanted}; got {_shown(value)}", "rule", at, "args")
        try:
            return re.compile(expression, re.DOTALL)
        except (re.error, OverflowError, RecursionError) as error:
            problem = f"args.{name}: the regular expression is wrong: {error}"
            self._fail(problem, "rule", at, "args")

    def action(self, key: str, value: object, table: str = "", at: int = 0) -> Action:
        """Return a value as an action."""
        if value not in _ACTIONS:
            self._fail(f"{key} = {_shown(value)} is not one of {_ACTION_NAMES}", table, at, key)
        return cast(Action, value)

    def _unknown(self, key: object, known: Sequence[str], table: str, at: int = 0) -> NoReturn:
        near = difflib.get_close_matches(str(key), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        problem = f"unknown key {_shown(key)}{hint} Accepted: {', '.join(known)}"
        self._fail(problem, table, at, str(key))

    def _fail(self, problem: str, table: str = "", at: int = 0, key: str = "") -> NoReturn:
        raise PolicyError(f"{self._locate(table, at, key)}: {problem.rstrip('.')}.")


def _items(value: object) -> Sequence[object] | None:
    return cast(Sequence[object], value) if isinstance(value, list | tuple) else None


def _table(value: object) -> Mapping[str, object] | None:
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else None


def _dotted(table: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return the entries of a table; those of inner tables have dotted names."""
    found: list[tuple[str, object]] = []
    for name, value in table.items():
        inner = _table(value)
        if inner and set(inner) != {"regex"}:
            found += [(f"{name}.{key}", one) for key, one in _dotted(inner)]
        else:
            found.append((str(name), value))
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


MAX_BYTES = 1_000_000


def read_texts(paths: Sequence[str | os.PathLike[str]]) -> list[PolicyText]:
    """Read several files; see `Policy.from_toml`."""
    files = ConfinedFiles()
    return [parse_text(file_text(path, files), file_name(path)) for path in map(Path, paths)]


def file_name(path: Path) -> str:
    """Return a file's name for reasons, without its full path, since models read them."""
    return path.name


def file_text(path: Path, files: ConfinedFiles) -> str:
    """Return the text of a file.

    Args:
        path: The file.
        files: Reads it.

    Raises:
        PolicyError: It cannot be read, is too long, or is not UTF-8.
    """
    try:
        data = files.read(path, MAX_BYTES + 1)
    except DefinitionError as error:
        raise PolicyError(f"policy {error}") from error
    except OSError as error:
        raise PolicyError(
            f"policy {path} cannot be read: {error.strerror or error}. Name a readable TOML file."
        ) from error
    if len(data) > MAX_BYTES:
        raise PolicyError(
            f"{path}: the file is larger than {MAX_BYTES:,} bytes, the limit for a policy."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{path}:{line}: not UTF-8 text. Save the file as UTF-8.") from error


def parse_text(text: str, name: str) -> PolicyText:
    """Read the rules and defaults of one file.

    Raises:
        PolicyError: It is not valid; the text names the line.
    """
    try:
        data = tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        place = f"{name}:{found[1]}" if found else name
        raise PolicyError(f"{place}: not valid TOML: {error}") from error
    return _Reader(name, _Places(text, name).locate).read(data)


class _Places:
    """Finds the lines of tables and keys in the text of a file."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = text.splitlines()
        self._name = name
        heads = [at for at, line in enumerate(self._lines) if re.match(r"\s*\[", line)]
        self._heads = [*heads, len(self._lines)]

    def locate(self, table: str, at: int, key: str) -> str:
        """Return file and line; see `Locate`."""
        place = self._section(table, at) if table else range(len(self._lines))
        quoted = re.escape(key)
        entry = re.compile(rf"""\s*\[*\s*["']?{quoted}["']?\s*(?:[=.\]]|$)""")
        inner = re.compile(rf"""\s*\[+[^\]]*\.\s*["']?{quoted}["']?\s*\]""")
        for line in place if key else ():
            if entry.match(self._lines[line]) or inner.match(self._lines[line]):
                return f"{self._name}:{line + 1}"
        return f"{self._name}:{place.start + 1}" if self._lines else self._name

    def _section(self, name: str, at: int) -> range:
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
