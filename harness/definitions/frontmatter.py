"""Frontmatter of definition files (skills and subagents) in YAML, and TOML text with line numbers.

A definition file is UTF-8 text that begins with a `---` line, YAML, and a closing `---` line; the
rest is the body. Only plain data is accepted: no tags that create objects, no aliases (a few bytes
could expand without limit) and no duplicate keys. Dates stay text. Every error is a
`DefinitionError` with the file, the line and the expected form.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from pydantic import JsonValue

from .._internal.records import record
from ..errors import HarnessError

if TYPE_CHECKING:
    import yaml

__all__ = [
    "MAX_FILE_BYTES",
    "MAX_FRONTMATTER_CHARS",
    "DefinitionError",
    "Frontmatter",
    "decode",
    "line_of",
    "parse_toml",
]


MAX_FILE_BYTES = 10_000_000
"""Largest definition file, in bytes."""

MAX_FRONTMATTER_CHARS = 64_000
"""Largest frontmatter, in characters."""

_OPENING = re.compile(r"---[ \t]*\n")
_CLOSING = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_NAMES = re.compile(r"[^\s,(]+(?:\([^)]*\))?")


class DefinitionError(HarnessError):
    """A definition file breaks a rule; the text names the file, the line and the rule."""


def decode(data: bytes, path: Path) -> str:
    r"""Return the text of a definition file, without BOM and with `\n` line ends.

    Raises:
        DefinitionError: It is larger than `MAX_FILE_BYTES` or not UTF-8.
    """
    if len(data) > MAX_FILE_BYTES:
        raise DefinitionError(
            f"{path}: the file has more than {MAX_FILE_BYTES:,} bytes, the maximum. Move parts "
            "of it into other files."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DefinitionError(f"{path}:{line}: not UTF-8 text. Save the file as UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


@record
class Frontmatter:
    """A parsed definition file.

    Attributes:
        path: The file; used in error messages.
        fields: The frontmatter as JSON data.
        body: Everything after the closing line, without blank lines around it.
        lines: Line number of each key, from 1. Items of a key's mapping or list are named
            `key.inner` or `key.0`, one level deep.
    """

    path: Path
    fields: Mapping[str, JsonValue]
    body: str
    lines: Mapping[str, int]

    @classmethod
    def parse(cls, text: str, path: Path) -> Frontmatter:
        """Split and parse a definition file.

        Raises:
            DefinitionError: There is no frontmatter, or it is not a plain YAML mapping.
        """
        opening = _OPENING.match(text)
        if opening is None:
            raise DefinitionError(
                f"{path}:1: the file must begin with frontmatter: a line '---', then 'name: …' "
                "and 'description: …', then a line '---', then the instructions."
            )
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            raise DefinitionError(
                f"{path}:1: the frontmatter is not closed; put a line '---' after its last field."
            )
        source = text[opening.end() : closing.start()]
        if len(source) > MAX_FRONTMATTER_CHARS:
            raise DefinitionError(
                f"{path}:1: the frontmatter has {len(source):,} characters; at most "
                f"{MAX_FRONTMATTER_CHARS:,} are allowed. Move material into the body."
            )
        fields, lines = _load(source, path)
        return cls(path, deepcopy(fields), text[closing.end() :].strip("\n"), lines)

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise `DefinitionError` about a field, at its line."""
        raise DefinitionError(f"{self.path}:{self.lines.get(key, 1)}: {problem}")

    def text(self, key: str, *, limit: int) -> str | None:
        """Return a text field without surrounding blanks; None when it is absent.

        Raises:
            DefinitionError: It is not text, blank, or longer than `limit` characters.
        """
        value = self.fields.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fail(key, f"{key!r} must be text, not {value!r}; put it in quotes.")
        value = value.strip()
        if not 1 <= len(value) <= limit:
            self.fail(key, f"{key!r} must have 1 to {limit} characters; it has {len(value)}.")
        return value

    def required_text(self, key: str, *, limit: int) -> str:
        """Return a required text field.

        Raises:
            DefinitionError: It is missing, or invalid as for `text`.
        """
        value = self.text(key, limit=limit)
        if value is None:
            self.fail(key, f"{key!r} is missing; add a line '{key}: …' to the frontmatter.")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """Return a list of names: a YAML list, or text separated by commas and blanks.

        Raises:
            DefinitionError: The value has another type.
        """
        value = self.fields.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            return tuple(_NAMES.findall(value))
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.fail(key, f"{key!r} must be a list of names such as [read_file, grep].")
        return tuple(cast(list[str], value))


@functools.lru_cache(maxsize=128)  # the workspaces of all callers have the same skills
def _load(source: str, path: Path) -> tuple[dict[str, JsonValue], dict[str, int]]:
    import yaml

    try:
        loader: Any = _loader_class()(source)
        node: yaml.Node | None = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise DefinitionError(
                f"{path}:2: the frontmatter must consist of 'key: value' lines, such as "
                "'name: my-skill'."
            )
        data: dict[Any, Any] = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 2 if mark else 2
        raise DefinitionError(
            f"{path}:{line}: the frontmatter is not valid YAML: {error.problem or error}. Put "
            "values that contain ': ' or begin with a special character in quotes."
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        why = " ".join(str(error).split())
        raise DefinitionError(f"{path}:2: the frontmatter is not valid YAML: {why}.") from error
    except RecursionError as error:
        raise DefinitionError(f"{path}:2: the frontmatter is nested too deeply.") from error
    keys = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
    lines = _lines(keys)
    fields = {
        _key(name, path): _json(value, path, lines.get(str(name), 2))
        for name, value in data.items()
    }
    return fields, lines


def _lines(keys: list[tuple[yaml.Node, yaml.Node]]) -> dict[str, int]:
    """Return the line of each key, and of the items of its mapping or list."""
    import yaml

    lines: dict[str, int] = {}
    for key, value in keys:
        name = str(key.value)
        nodes = {name: key}
        if isinstance(value, yaml.MappingNode):
            inner = cast("list[tuple[yaml.Node, yaml.Node]]", value.value)
            nodes |= {f"{name}.{one.value}": one for one, _ in inner}
        elif isinstance(value, yaml.SequenceNode):
            items = cast("list[yaml.Node]", value.value)
            nodes |= {f"{name}.{place}": one for place, one in enumerate(items)}
        lines |= {at: node.start_mark.line + 2 for at, node in nodes.items() if node.start_mark}
    return lines


def _key(name: object, path: Path, line: int = 2) -> str:
    if not isinstance(name, str):
        raise DefinitionError(f"{path}:{line}: the key {name!r} must be text; put it in quotes.")
    return name


def _json(value: Any, path: Path, line: int) -> JsonValue:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [_json(item, path, line) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return {_key(name, path, line): _json(item, path, line) for name, item in items}
    kind = "an infinite number" if isinstance(value, float) else f"a {type(value).__name__}"
    raise DefinitionError(
        f"{path}:{line}: {kind} is not allowed; use text, numbers, true/false, lists and mappings."
    )


@functools.cache
def _loader_class() -> type[yaml.SafeLoader]:
    """Return the YAML loader; made at first use because importing yaml takes a while."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data: no aliases, no repeated keys, dates as text."""

        yaml_implicit_resolvers = {
            first: [(tag, regexp) for tag, regexp in rules if not tag.endswith(":timestamp")]
            for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                event: Any = cast(Any, self).peek_event()
                raise yaml.MarkedYAMLError(
                    problem="aliases (*name) are not allowed; write the value out",
                    problem_mark=event.start_mark,
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
                name = str(key.value)
                if name in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {name!r} appears twice", problem_mark=key.start_mark
                    )
                seen.add(name)
            return super().construct_mapping(node, deep=deep)

    return Loader


_AT_LINE = re.compile(r" ?\(at line (\d+), column \d+\)")


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the parsed content of a TOML file.

    Raises:
        DefinitionError: It is not valid TOML; the text names the file and the line.
    """
    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        at = _AT_LINE.search(str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        raise DefinitionError(
            f"{path}:{line}: not valid TOML: {_AT_LINE.sub('', str(error))}."
        ) from error


def line_of(text: str, keys: Sequence[str | int]) -> int:
    """Return the line of a key, or of the nearest enclosing table or key that exists.

    The line is found with the parser: the shortest valid prefix of the file that has the key ends
    with the key's value. The value begins after the longest valid prefix before it.

    Args:
        text: Valid TOML.
        keys: Names of tables and keys, and indexes in lists, from the outside in.
    """
    lines = text.split("\n")
    before, found, depth = 0, 1, 0
    for count in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("\n".join(lines[:count]))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        reached = _depth(data, keys)
        if reached > depth:
            found, depth = before + 1, reached
            while not lines[found - 1].strip() and found < count:
                found += 1
        before = count
        if depth == len(keys):
            break
    return found


def _depth(data: object, keys: Sequence[str | int]) -> int:
    """Return how many of the nested keys exist, counted from the outside."""
    for depth, key in enumerate(keys):
        if isinstance(key, int):
            if not isinstance(data, list) or key >= len(cast("list[object]", data)):
                return depth
            data = cast("list[object]", data)[key]
        elif isinstance(data, dict) and key in data:
            data = cast("dict[str, object]", data)[key]
        else:
            return depth
    return len(keys)
