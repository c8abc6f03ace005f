"""Access changes: existing paths where a command's access differs from that of their directory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from .command_path_access import STRICTNESS, WILD, Access, only_globs, patterns, policies_in, reach
from .composite import CallPolicy, NarrowedPolicy
from .patterns import expanded, folded, name_pattern, path_forms
from .policy import Policy

__all__ = ["HEAVY", "Children", "access_changes"]

HEAVY = frozenset(
    {"node_modules", ".git", ".venv", "venv", ".tox", "__pycache__", "target", "dist", "build"}
)
"""Directories that are searched last or not at all, because they have many files and few rules are
about them."""

_PLAIN = re.compile(r"[\w.-]*[\w-]", re.ASCII)
_EVERY = 1_000
_MOST_NEARBY = 60
"""For policies with a `search_depth`: after this many found paths, only directories on the way to
one of their names are searched. Each path delays the start of a shell, and there is a limit."""


class Children(Protocol):
    """Lists directories."""

    def __call__(self, path: str, /, *, optional: bool = False) -> Iterable[tuple[str, bool]]:
        """Return the names in a directory, and whether each is a directory (a link is not).

        Args:
            path: The directory's canonical path.
            optional: Whether it may be skipped if there is no time.
        """
        ...


def access_changes(
    policy: CallPolicy,
    children: Children,
    *,
    agent: Sequence[str] = (),
    principal: str = "",
) -> Iterator[tuple[str, Access]]:
    """Yield `/` and each existing path whose access differs from its directory's, parents first.

    A path that is not yielded has the access of the nearest yielded path above it. Only directories
    that can contain such paths are listed: only `/` for `/docs/**`, all directories for `**/.env`.
    Paths for policies with a `search_depth` are searched afterwards, down to that depth.
    Blocks like `children`, and raises its errors.

    Args:
        policy: The policy.
        children: Lists a directory, given its canonical path.
        agent: See `reach`.
        principal: See `reach`.
    """
    nearby, rest = _split(policy)
    judge = _Judge(rest, agent, principal)
    if not nearby.policies:
        for path, access, _ in _everywhere(judge, children):
            yield path, access
        return
    near = _Judge(nearby, agent, principal)
    for path, access, is_dir in _everywhere(judge, children):
        yield path, _stricter(access, near(path, is_dir))
    for path, access, is_dir in _nearby(near, children):
        yield path, _stricter(access, judge(path, is_dir))


def _split(policy: CallPolicy) -> tuple[NarrowedPolicy, CallPolicy]:
    """Return the policies with a `search_depth`, and the others."""
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
    """Determines the access of a caller."""

    policy: CallPolicy
    agent: Sequence[str]
    principal: str

    def __call__(self, path: str, is_dir: bool) -> Access:
        policy = _of_directories(self.policy) if is_dir else self.policy
        return reach(policy, path, agent=self.agent, principal=self.principal)


def _of_directories(policy: CallPolicy) -> CallPolicy:
    """Return a policy without rules that are only about files."""
    every = list(policies_in(policy))
    kept = [one for one in every if not (isinstance(one, Policy) and one.files_only)]
    return policy if len(kept) == len(every) else NarrowedPolicy(kept)


def _stricter(one: Access, other: Access) -> Access:
    return max(one, other, key=STRICTNESS.__getitem__)


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
    """Return a judge that decides once for all paths that match the same globs."""
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
    """Yield the paths for policies with a `search_depth`: the root, then down to the depth."""
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
    """Whether a glob contains a directory of the path, and continues below it.

    Args:
        glob: The glob.
        at: The steps that have matched so far.
        depth: The depth of the parent directory.
    """
    if at <= glob.start or glob.steps[at:] in ((), (None,)):
        return at < glob.start
    if None in (glob.steps[at], glob.steps[at - 1]) and depth >= glob.deepest:
        return False
    return any(step is not None for step in glob.steps[glob.start : at])


def _is_open(glob: _Glob, at: int, depth: int) -> bool:
    """Whether a glob's first `**` can match a directory; `depth` is its parent's."""
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
    """How many levels below it a sandbox searches."""


_Where: TypeAlias = frozenset[tuple[_Glob, int]] | None
"""How far each glob has matched on the way to a path; None if the path must be judged itself."""

_Waiting: TypeAlias = "tuple[str, Access, frozenset[tuple[_Glob, int]], bool]"
"""A directory to search, its access, and whether to search below it."""

_Matched: TypeAlias = frozenset[int]
"""Numbers of the globs that match a path, which alone decide about it."""


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
    """Yield how far a glob has matched, also if `**` matches nothing."""
    yield glob, at
    while at < len(glob.steps) and glob.steps[at] is None:
        at += 1
        yield glob, at


class _Next(NamedTuple):
    """Possible next characters, so that most names can be skipped quickly."""

    exact: frozenset[str]
    folded: frozenset[str]
    others: bool
    """Whether there are names with wildcards."""
    else_: frozenset[tuple[_Glob, int]]
    """How far the globs have matched after any other name."""


@lru_cache(256)
def _next(where: frozenset[tuple[_Glob, int]]) -> _Next:
    ahead = [(glob, at) for glob, at in where if at < len(glob.steps)]
    names = [(glob.loose, glob.names[at]) for glob, at in ahead if glob.steps[at] is not None]
    return _Next(
        frozenset(name for loose, name in names if not loose),
        frozenset(name for loose, name in names if loose),
        any(WILD.search(name) for _, name in names),
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
        return None  # some file systems treat it as more than a name
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
    """Whether paths below it can differ in access from each other, or from their directory."""
    if where is None:
        return True
    for glob, at in where:
        rest = glob.steps[at:]
        if rest and rest != (None,):
            return True
        if not rest and (not glob.steps or glob.steps[-1] is not None):
            return True  # it matches only the directory
    return False
