"""Policies in TOML: read strictly, and with the line of what is wrong."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from ...definitions.confined_files import ConfinedFiles
from ...definitions.frontmatter import DefinitionError
from ..errors import PolicyError
from .policy_parsing import PolicyText, read_tables

__all__ = ["file_name", "file_text", "parse_text", "read_texts"]

MAX_BYTES = 1_000_000


def read_texts(paths: Sequence[str | os.PathLike[str]]) -> list[PolicyText]:
    """Read several files; see `Policy.from_toml`."""
    files = ConfinedFiles()
    return [parse_text(file_text(path, files), file_name(path)) for path in map(Path, paths)]


def file_name(path: Path) -> str:
    """Return what reasons call a file: models and people read them, so not all of its path."""
    return path.name


def file_text(path: Path, files: ConfinedFiles) -> str:
    """Return the text of a file.

    Args:
        path: The file.
        files: Reads it.

    Raises:
        PolicyError: It cannot be read, is too long, or not UTF-8.
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
        raise PolicyError(f"{path}: more than {MAX_BYTES:,} bytes; that is no policy.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{path}:{line}: not UTF-8 text. Save the file as UTF-8.") from error


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
    return read_tables(data, name, _Places(text, name).locate)


class _Places:
    """Finds the lines of tables and keys, as well as they can be told from the text."""

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
