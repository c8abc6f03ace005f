"""TOML text: parsed, with the line of whatever is wrong in it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from .frontmatter import DefinitionError

__all__ = ["line_of", "parse_toml"]

_AT_LINE = re.compile(r" ?\(at line (\d+), column \d+\)")


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return what a TOML file says.

    Raises:
        DefinitionError: It is not TOML; the text names the file and the line.
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
    """Return the line where a key is defined, or the nearest table or key above it that is.

    The parser itself tells: of the beginnings of the file that are valid, the shortest one that
    has the key ends with its value, and that value begins after the one before.

    Args:
        text: Valid TOML.
        keys: Names of tables and keys, and places in lists, from the outside in.
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
    """Return how many of the keys, one below the other, are there."""
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
