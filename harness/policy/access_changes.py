"""The existing paths at which the reach of a command changes, found without looking at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .command_path_access import Access, only_globs, patterns, reach
from .composite import CallPolicy
from .paths import folded, path_forms
from .patterns import expanded, name_pattern

if TYPE_CHECKING:
    from ..tools.tool import Tool

__all__ = ["Children", "access_changes"]

Children: TypeAlias = Callable[[str], Iterable[tuple[str, bool]]]
"""Returns the names in a directory, and whether each is a directory itself (a link is none)."""


def access_changes(
    policy: CallPolicy,
    children: Children,
    *,
    agent: Sequence[str] = (),
    principal: str = "",
    tools: Mapping[str, Tool] | None = None,
) -> Iterator[tuple[str, Access]]:
    """Yield `/` and each existing path whose reach is not that of its directory, parents first.

    What lies below a yielded path and is not yielded itself has its reach. Only directories are
    listed below which rules tell paths apart: `/` alone for `/docs/**`, all of them for `**/.env`.
    Blocks as `children` does, and raises what it raises.

    Args:
        policy: The policy.
        children: Lists a directory, given its canonical path.
        agent: See `reach`.
        principal: See `reach`.
        tools: See `reach`.
    """
    known: dict[_Matched, Access] = {}

    def judged(path: str, where: _Where) -> Access:
        matched = _matched(where) if where is not None else None
        if matched is None or matched not in known:
            access = reach(policy, path, agent=agent, principal=principal, tools=tools)
            if matched is None:
                return access
            known[matched] = access
        return known[matched]

    where = _begun(policy)
    above = judged("/", where)
    yield "/", above
    waiting = [("/", above, where)]
    while waiting:
        directory, above, where = waiting.pop()
        inner: list[tuple[str, Access, _Where]] = []
        for name, is_dir in children(directory):
            path = f"{directory.rstrip('/')}/{name}"
            after = _after(where, name)
            access = judged(path, after)
            if access != above:
                yield path, access
            if is_dir and _differs_below(after):
                inner.append((path, access, after))
        waiting += reversed(inner)


class _Glob(NamedTuple):
    """A glob in steps: expressions for names, and None for `**`."""

    number: int
    steps: tuple[re.Pattern[str] | None, ...]
    loose: bool
    """Whether it is compared with folded names."""


_Where: TypeAlias = frozenset[tuple[_Glob, int]] | None
"""How far each glob has got on the way to a path; None when all that can be done is to judge it."""

_Matched: TypeAlias = frozenset[int]
"""Numbers of the globs that match a path; rules tell paths apart by nothing else."""


def _begun(policy: CallPolicy) -> _Where:
    if not only_globs(policy):
        return None
    found: dict[tuple[str, bool], None] = {}
    for one in patterns(policy):
        for glob in expanded(one.glob):
            found |= dict.fromkeys(((glob, False), (folded(glob), True)))
    globs = [_Glob(number, _steps(glob), loose) for number, (glob, loose) in enumerate(found)]
    return frozenset(state for glob in globs for state in _closed(glob, 0))


def _steps(glob: str) -> tuple[re.Pattern[str] | None, ...]:
    names = [name for name in glob.split("/") if name]
    return tuple(None if name == "**" else name_pattern(name) for name in names)


def _closed(glob: _Glob, at: int) -> Iterator[tuple[_Glob, int]]:
    """Yield how far a glob is, and how far it is if `**` stands for nothing."""
    yield glob, at
    while at < len(glob.steps) and glob.steps[at] is None:
        at += 1
        yield glob, at


def _after(where: _Where, name: str) -> _Where:
    if where is None:
        return None
    loose = path_forms(name).folded.strip("/")
    if "\\" in name or "/" in loose or not loose:
        return None  # to some file systems it is more than a name
    found: set[tuple[_Glob, int]] = set()
    for glob, at in where:
        if at == len(glob.steps):
            continue
        step = glob.steps[at]
        if step is None:
            found.update(_closed(glob, at))
        elif step.match(loose if glob.loose else name):
            found.update(_closed(glob, at + 1))
    return frozenset(found)


def _matched(where: frozenset[tuple[_Glob, int]]) -> _Matched:
    return frozenset(glob.number for glob, at in where if at == len(glob.steps))


def _differs_below(where: _Where) -> bool:
    """Whether rules may tell paths below apart, or from their directory."""
    if where is None:
        return True
    for glob, at in where:
        rest = glob.steps[at:]
        if rest and rest != (None,):
            return True
        if not rest and (not glob.steps or glob.steps[-1] is not None):
            return True  # it matches the directory alone
    return False
