"""Launch rules: the layer of rules about what programs read when they start, as globs in a root."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from ...harness.policy import CallPolicy, Policy, Rule
from ...harness.policy.composite import CompositePolicy
from ..install.machine import Machine
from .accepted import (
    REDIRECTS,
    SEARCH_DEPTH,
    anchored,
    client_files,
    is_exempt,
    launch_patterns,
    moved,
)
from .settings import Settings
from .toolsets import withheld_tools

__all__ = ["LaunchRules", "below", "place_glob", "places_in"]

_SOURCE = "the server's own rules"
_AT_START = "programs take settings or code from there when they start"


class LaunchRules(CompositePolicy):
    """The rules, made when the first call is judged: they would delay the start of the server."""

    __slots__ = ("_made", "_of")

    def __init__(self, settings: Settings, root: Path, prefix: str) -> None:
        self._of = (settings, root, prefix)
        self._made: Sequence[CallPolicy] = ()

    @property
    def reads_paths(self) -> bool:
        """Return True: all of them are about paths."""
        return True

    @property
    def are_made(self) -> bool:
        """Whether they are there."""
        return bool(self._made)

    def parts(self) -> Sequence[CallPolicy]:
        """Return the rules. Blocks for some ten milliseconds when they are made."""
        if not self._made:
            settings, root, prefix = self._of
            globs = [_escaped(prefix) + one for one in REDIRECTS]
            self._made = (
                _at_start(settings, prefix, _launch_globs(settings, root, prefix)),
                _at_start(settings, prefix, globs, files_only=True),
            )
        return self._made


def _launch_globs(settings: Settings, root: Path, prefix: str) -> Sequence[str]:
    """Return the globs of what programs read when they start, see `launch_files`."""
    given = settings.protect_paths
    globs = [
        _escaped(prefix) + anchored(one)
        for one in (*launch_patterns(), *(one for one in given if not is_exempt(one)))
    ]
    elsewhere = (*client_files(Machine.here()), *moved(root))
    globs += [
        place_glob(prefix, place, is_directory=True)
        for path in elsewhere
        for place in places_in(root, path)
        if place != "/"
    ]
    return list(dict.fromkeys(globs))


def _at_start(
    settings: Settings, prefix: str, globs: Sequence[str], *, files_only: bool = False
) -> Policy:
    """Return the rules about what programs read when they start.

    Args:
        settings: What the operator chose.
        prefix: Where the file tools have the root.
        globs: Where such files are.
        files_only: See `Policy`.
    """
    rules = [
        Rule("allow", path=_escaped(prefix) + anchored(one))
        for one in settings.protect_paths
        if is_exempt(one)
    ]
    action, why = _who_decides(settings)
    rules.append(
        Rule(
            action,
            path=globs,
            reason=f"{_AT_START}, {why}",
            read_only=False,
            source=_SOURCE,
        )
    )
    return Policy(rules, source=_SOURCE, search_depth=SEARCH_DEPTH, files_only=files_only)


def _who_decides(settings: Settings) -> tuple[Literal["ask", "deny"], str]:
    if settings.protect == "deny":
        return "deny", "so only a person edits it"
    if "reply" in withheld_tools(settings):
        return "deny", "so a person would have to approve it, which clients of this server cannot"
    return "ask", "so a person decides"


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
    literal = _escaped(prefix + place).rstrip("/")
    return f"{literal}/**" if is_directory else literal or "/"


def _escaped(path: str) -> str:
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
