"""Where files are in a root, seen through links, and the globs of rules about them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["below", "escaped", "place_glob", "places_in"]

_WILD = re.compile(r"([*?{}\[\]\\])")
_MOST_LINKS = 40


def places_in(root: Path, path: Path) -> Sequence[str]:
    """Return where a file, and the links on the way to it, are in a directory.

    Args:
        root: The directory; it exists.
        path: An absolute path; it need not exist.

    Returns:
        Paths from the root, such as `/conf/policy.toml`; `/` for the root itself.
    """
    found = (below(root, step) for step in _steps(path))
    return list(dict.fromkeys(one for one in found if one is not None))


def place_glob(prefix: str, place: str, *, is_directory: bool) -> str:
    """Return the glob of a place in a root that file tools have at a prefix."""
    literal = escaped(prefix + place).rstrip("/")
    return f"{literal}/**" if is_directory else literal or "/"


def escaped(path: str) -> str:
    """Return a path as the glob that fits it alone."""
    return _WILD.sub(r"\\\1", path)


def below(root: Path, path: Path) -> str | None:
    """Return a path from a directory, or None if it is elsewhere; by identity, not by name."""
    for above in path.parents if path.is_symlink() else (path, *path.parents):
        try:
            if os.path.samefile(above, root):
                below = path.relative_to(above).as_posix()
                return "/" if below == "." else f"/{below}"
        except OSError:
            continue  # not there, so neither is it the root
    return None


def _steps(path: Path) -> Iterator[Path]:
    """Yield each link on the way to a file where it really stands, and the file at last."""
    at, left, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    while left:
        name = left.pop()
        here = at.parent if name == ".." else at / name
        if not here.is_symlink():
            at = here
            continue
        yield here
        links += 1
        if links > _MOST_LINKS:
            return
        target = Path(os.readlink(here))
        at = Path(target.anchor) if target.is_absolute() else at
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    yield at
