"""The layer of rules about what programs read when they start, see `launch_files`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ...harness.policy import CallPolicy, Policy, Rule
from ...harness.policy.composite import CompositePolicy
from ..install.machine import Machine
from .launch_files import SEARCH_DEPTH, anchored, client_files, is_exempt, launch_patterns, moved
from .root_places import escaped, place_glob, places_in
from .settings import Settings
from .toolsets import withheld_tools

__all__ = ["LaunchRules"]

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

    def parts(self) -> Sequence[CallPolicy]:
        """Return the rules."""
        if not self._made:
            self._made = (_at_start(*self._of),)
        return self._made


def _at_start(settings: Settings, root: Path, prefix: str) -> Policy:
    """Return the rules about what programs read when they start, see `launch_files`."""
    given = settings.protect_paths
    globs = [
        escaped(prefix) + anchored(one)
        for one in (*launch_patterns(), *(one for one in given if not is_exempt(one)))
    ]
    elsewhere = (*client_files(Machine.here()), *moved(root))
    globs += [
        place_glob(prefix, place, is_directory=True)
        for path in elsewhere
        for place in places_in(root, path)
        if place != "/"
    ]
    rules = [Rule("allow", path=escaped(prefix) + anchored(one)) for one in given if is_exempt(one)]
    action, why = _who_decides(settings)
    rules.append(
        Rule(
            action,
            path=list(dict.fromkeys(globs)),
            reason=f"{_AT_START}, {why}",
            read_only=False,
            source=_SOURCE,
        )
    )
    return Policy(rules, source=_SOURCE, search_depth=SEARCH_DEPTH)


def _who_decides(settings: Settings) -> tuple[Literal["ask", "deny"], str]:
    if settings.protect == "deny":
        return "deny", "so only a person edits it"
    if "reply" in withheld_tools(settings):
        return "deny", "so a person would have to approve it, which clients of this server cannot"
    return "ask", "so a person decides"
