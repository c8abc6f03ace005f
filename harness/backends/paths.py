"""Paths of files in any backend: which are usable, in which order, and what errors say of them."""

from __future__ import annotations

from .base import FileError, canonical_path

__all__ = [
    "MAX_DEPTH",
    "changed",
    "checked_path",
    "every_path",
    "nameable",
    "size_text",
    "walk_order",
]

MAX_DEPTH = 100
"""Paths with more names are refused, and directories deeper than this not walked into."""

_MAX_PATH = 1_024


def checked_path(path: str) -> str:
    """Return the canonical path.

    Raises:
        FileError: It is not usable, too long, or holds what no file name can.
    """
    canonical = canonical_path(path)
    problem = None
    if not nameable(canonical):
        problem = "it is not valid Unicode"
    elif len(canonical) > _MAX_PATH:
        problem = f"it is longer than {_MAX_PATH} characters"
    elif canonical.count("/") > MAX_DEPTH:
        problem = f"it is deeper than {MAX_DEPTH} directories"
    if problem is not None:
        start = canonical[:100]
        raise FileError("invalid_path", path, f"path {start!r}: {problem}. Nothing was done.")
    return canonical


def nameable(name: str) -> bool:
    """Whether a name on disk can be written down; others are left out of listings."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def walk_order(path: str) -> list[str]:
    """Return what paths are sorted by in the order of a walk: name by name."""
    return path.split("/")


def every_path(path: str) -> bool:
    """Return True: all files are meant."""
    return True


def changed(path: str) -> FileError:
    """Return the error for a file that is not what it was."""
    return FileError(
        "changed",
        path,
        f"{path} was changed by someone else in the meantime. Nothing was done; read it again.",
    )


def size_text(size: int) -> str:
    """Return a size for people, such as `12.3 MiB`."""
    amount, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} bytes" if units[0] == "bytes" else f"{amount:.1f} {units[0]}"
