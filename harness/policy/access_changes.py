"""Access changes: existing paths where a command's access differs from that of their directory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from .command_path_access import Access, only_globs, patterns, policies_in, reach
from .composite import CallPolicy, NarrowedPolicy
from .patterns import expanded, folded, name_pattern, path_forms
from .policy import Policy

if TYPE_CHECKING:
    from ..tools.tool import Tool

__all__ = ["HEAVY", "Children", "access_changes"]

HEAVY = frozenset(
    {"node_modules", ".git", ".venv", "venv", ".tox", "__pycache__", "target", "dist", "build"}
)
"""Directories looked at last or not at all, because they have many files and rules seldom speak of
them."""

_STRICTNESS: Mapping[Access, int] = {"write": 0, "read": 1, "hidden": 2}
_PLAIN = re.compile(r"[\w.-]*[\w-]", re.ASCII)
_WILD = re.compile(r"[*?\[{\\]")
_EVERY = 1_000
_MOST_NEARBY = 60
"""Paths found for policies with a `search_depth` after which only what lies on the way to a name of
theirs is looked at: a shell starts later with each, and there is no room for all."""


class Children(Protocol):
    """Lists directories."""

    def __call__(self, path: str, /, *, optional: bool = False) -> Iterable[tuple[str, bool]]:
        """Return the names in a directory, and whether each is a directory itself (a link is none).

        Args:
            path: The directory's canonical path.
            optional: Whether nothing is lost if it is not listed for lack of time.
        """
        ...


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
    What policies with a `search_depth` guard is looked for afterwards, as far as that goes.
    Blocks as `children` does, and raises what it raises.

    Args:
        policy: The policy.
        children: Lists a directory, given its canonical path.
        agent: See `reach`.
        principal: See `reach`.
        tools: See `reach`.
    """
    nearby, rest = _split(policy)
    judge = _Judge(rest, agent, principal, tools)
    if not nearby.policies:
        for path, access, _ in _everywhere(judge, children):
            yield path, access
        return
    near = _Judge(nearby, agent, principal, tools)
    for path, access, is_dir in _everywhere(judge, children):
        yield path, _stricter(access, near(path, is_dir))
    for path, access, is_dir in _nearby(near, children):
        yield path, _stricter(access, judge(path, is_dir))


def _split(policy: CallPolicy) -> tuple[NarrowedPolicy, CallPolicy]:
    """Return the policies that sandboxes look for nearby, and the others."""
    every = list(policies_in(policy))
    nearby = [
        one
        for one in every
        if isinstance(one, Policy) and one.search_depth is not None and only_globs(one)
    ]
    if not nearby:
        return NarrowedPolicy(()), policy
    return NarrowedPolicy(nearby), NarrowedPolicy([one for one in every if one not in nearby])


class _Judge(NamedTuple):
    """Says what a caller reaches."""

    policy: CallPolicy
    agent: Sequence[str]
    principal: str
    tools: Mapping[str, Tool] | None

    def __call__(self, path: str, is_dir: bool) -> Access:
        policy = _of_directories(self.policy) if is_dir else self.policy
        return reach(policy, path, agent=self.agent, principal=self.principal, tools=self.tools)


def _of_directories(policy: CallPolicy) -> CallPolicy:
    """Return a policy without what is said of files alone."""
    every = list(policies_in(policy))
    kept = [one for one in every if not (isinstance(one, Policy) and one.files_only)]
    return policy if len(kept) == len(every) else NarrowedPolicy(kept)


def _stricter(one: Access, other: Access) -> Access:
    return max(one, other, key=_STRICTNESS.__getitem__)


def _everywhere(judge: _Judge, children: Children) -> Iterator[tuple[str, Access, bool]]:
    """Yield `/` and the paths that the globs of a policy tell from their directory.

    Besides, whether each is a directory.
    """
    judged = _remembering(judge)
    where = _begun(judge.policy)
    above = judged("/", where, True)
    yield "/", above, True
    waiting = [("/", above, where)]
    while waiting:
        directory, above, where = waiting.pop()
        inner: list[tuple[str, Access, _Where]] = []
        for name, is_dir in children(directory):
            path = f"{directory.rstrip('/')}/{name}"
            after = _after(where, name)
            access = judged(path, after, is_dir)
            if access != above:
                yield path, access, is_dir
            if is_dir and _differs_below(after):
                inner.append((path, access, after))
        waiting += reversed(inner)


def _remembering(judge: _Judge) -> Callable[[str, _Where, bool], Access]:
    """Return a judge that asks once for all paths that the same globs match."""
    known: dict[tuple[_Matched, bool], Access] = {}

    def judged(path: str, where: _Where, is_dir: bool) -> Access:
        if where is None:
            return judge(path, is_dir)
        key = _matched(where), is_dir
        if key not in known:
            known[key] = judge(path, is_dir)
        return known[key]

    return judged


def _nearby(judge: _Judge, children: Children) -> Iterator[tuple[str, Access, bool]]:
    """Yield what policies with a `search_depth` guard: the root first, then as far as that goes."""
    judged = _remembering(judge)
    where = _begun(judge.policy)
    assert where is not None  # there are only globs
    ahead, waiting = [("/", judge("/", True), where, True)], deque[_Waiting]()
    found = 0
    while ahead or (waiting and found < _MOST_NEARBY):
        directory, above, where, wide = ahead.pop() if ahead else waiting.popleft()
        depth = 0 if directory == "/" else directory.count("/")
        for name, is_dir in children(directory, optional=True):
            path = f"{directory.rstrip('/')}/{name}"
            after = _after(where, name)
            access = judged(path, after, is_dir)
            if access != above:
                found += 1
                yield path, access, is_dir
            if not is_dir or not after:
                continue
            on = wide and access == above and name not in HEAVY
            on = on and any(_is_open(*one, depth) for one in after)
            if any(_is_begun(*one, depth) for one in after):
                ahead.append((path, access, after, on))  # there are few
            elif on:
                waiting.append((path, access, after, on))


def _is_begun(glob: _Glob, at: int, depth: int) -> bool:
    """Whether a glob names a directory on the way, and continues below it.

    Args:
        glob: The glob.
        at: How far it has got.
        depth: Of the directory above.
    """
    if at <= glob.start or glob.steps[at:] in ((), (None,)):
        return at < glob.start
    if None in (glob.steps[at], glob.steps[at - 1]) and depth >= glob.deepest:
        return False
    return any(step is not None for step in glob.steps[glob.start : at])


def _is_open(glob: _Glob, at: int, depth: int) -> bool:
    """Whether a glob's first `**` may stand for a directory; `depth` is that of the one above."""
    return at == glob.start and depth < glob.deepest


class _Glob(NamedTuple):
    """A glob in steps: expressions for names, and None for `**`."""

    number: int
    names: tuple[str, ...]
    steps: tuple[re.Pattern[str] | None, ...]
    loose: bool
    """Whether it is compared with folded names."""
    start: int
    """Number of steps before its first `**`."""
    deepest: int
    """Levels in which a sandbox looks for what that could stand for."""


_Where: TypeAlias = frozenset[tuple[_Glob, int]] | None
"""How far each glob has got on the way to a path; None when all that can be done is to judge it."""

_Waiting: TypeAlias = "tuple[str, Access, frozenset[tuple[_Glob, int]], bool]"
"""A directory to look at, what may be done with it, and whether to look further below it."""

_Matched: TypeAlias = frozenset[int]
"""Numbers of the globs that match a path; rules tell paths apart by nothing else."""


def _begun(policy: CallPolicy) -> _Where:
    if not only_globs(policy):
        return None
    found: dict[tuple[str, bool, int], None] = {}
    for one in policies_in(policy):
        levels = _EVERY if not isinstance(one, Policy) else one.search_depth
        for pattern in patterns(one):
            for glob in expanded(pattern.glob):
                far = _EVERY if levels is None else levels
                found |= dict.fromkeys(((glob, False, far), (folded(glob), True, far)))
    globs = [_glob(number, *one) for number, one in enumerate(found)]
    return _one_of_equals(frozenset(state for glob in globs for state in _closed(glob, 0)))


def _glob(number: int, text: str, loose: bool, levels: int) -> _Glob:
    names = tuple(name for name in text.split("/") if name)
    steps = tuple(None if name == "**" else name_pattern(name) for name in names)
    start = steps.index(None) if None in steps else len(steps)
    return _Glob(number, names, steps, loose, start, start + levels)


def _closed(glob: _Glob, at: int) -> Iterator[tuple[_Glob, int]]:
    """Yield how far a glob is, and how far it is if `**` stands for nothing."""
    yield glob, at
    while at < len(glob.steps) and glob.steps[at] is None:
        at += 1
        yield glob, at


class _Next(NamedTuple):
    """Characters that may come next, so that most names need no closer look."""

    exact: frozenset[str]
    folded: frozenset[str]
    others: bool
    """Whether there are names with wildcards."""
    else_: frozenset[tuple[_Glob, int]]
    """How far the globs are after any other name."""


@lru_cache(256)
def _next(where: frozenset[tuple[_Glob, int]]) -> _Next:
    ahead = [(glob, at) for glob, at in where if at < len(glob.steps)]
    names = [(glob.loose, glob.names[at]) for glob, at in ahead if glob.steps[at] is not None]
    return _Next(
        frozenset(name for loose, name in names if not loose),
        frozenset(name for loose, name in names if loose),
        any(_WILD.search(name) for _, name in names),
        _one_of_equals(
            frozenset(
                state for glob, at in ahead if glob.steps[at] is None for state in _closed(glob, at)
            )
        ),
    )


@lru_cache(256)
def _one_of_equals(where: frozenset[tuple[_Glob, int]]) -> frozenset[tuple[_Glob, int]]:
    """Return the first of equal sets: looking one up by identity is a hundred times faster."""
    return where


def _after(where: _Where, name: str) -> _Where:
    if where is None:
        return None
    loose = name.lower() if _PLAIN.fullmatch(name) else path_forms(name).folded.strip("/")
    if "\\" in name or "/" in loose or not loose:
        return None  # to some file systems it is more than a name
    ahead = _next(where)
    if not (ahead.others or name in ahead.exact or loose in ahead.folded):
        return ahead.else_
    found = set(ahead.else_)
    for glob, at in where:
        step = glob.steps[at] if at < len(glob.steps) else None
        if step is not None and step.match(loose if glob.loose else name):
            found.update(_closed(glob, at + 1))
    return _one_of_equals(frozenset(found))


@lru_cache(256)
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
