"""Helpers for all packages; they do not depend on any other package."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from importlib import import_module

__all__ = ["clean_text", "count_of", "importable", "in_file_name", "is_unicode"]

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def count_of(number: int, thing: str) -> str:
    """Return a number with its noun: `1 run`, `2,000 runs`.

    Args:
        number: The number.
        thing: Singular of the noun; its plural ends in `s`.
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def is_unicode(text: str) -> bool:
    """Return whether a string is valid text; one that was cut inside a character is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_text(text: str) -> str:
    """Return the text with halves of surrogate pairs, which UTF-8 cannot encode, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def in_file_name(text: str, most: int) -> str:
    """Return the beginning of a text, such as a call's id, as a part of a file's name."""
    return _UNSAFE.sub("_", text)[:most]


def importable(package: str, names: Sequence[str], optional: Collection[str]) -> list[str]:
    """Return the names for `from package import *`: all whose extra is installed.

    If a name that is left out is imported explicitly, the `ImportError` says what to install.

    Args:
        package: The package; it loads its names lazily.
        names: Its public names.
        optional: Those of them that need an extra.
    """
    return [one for one in names if one not in optional or _is_there(package, one)]


def _is_there(package: str, name: str) -> bool:
    try:
        getattr(import_module(package), name)
    except ImportError:
        return False
    return True
