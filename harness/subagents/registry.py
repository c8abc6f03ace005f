"""All subagents from a directory of Markdown files, reloadable while runs are going on."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from weakref import WeakMethod

from ..definitions.confined_files import RefusedLink
from ..definitions.frontmatter import DefinitionError
from ..definitions.registry import DefinitionRegistry, Objection, no_such
from ..definitions.sources import FileStat, Found, Source
from ..errors import AgentBuildError, ToolError
from .definitions import (
    GENERAL_PURPOSE,
    AnySubAgent,
    CompiledSubAgent,
    SubAgent,
)
from .markdown import load_subagent

__all__ = ["SubAgentRegistry", "UnknownSubAgent"]


class UnknownSubAgent(ToolError):
    """There is no subagent of that name; the text lists those there are."""


class SubAgentRegistry(DefinitionRegistry[AnySubAgent]):
    """Subagents by name. Safe to read from any thread.

    Args:
        directory: Holds one `*.md` file per subagent; it need not exist yet. None for no files.
        builtin: Subagents that are always there; one that is given, or a file, of the same name
            takes their place.
        given: Further subagents, made in code. A file of the same name is an error.
        untrusted: Directories that agents can write: of a file there that is a link out of them,
            nothing is read.

    Raises:
        AgentBuildError: Two of those that are given share a name.
    """

    kind = "subagents"
    holds = "one Markdown file per subagent"

    def __init__(
        self,
        directory: Path | None,
        builtin: Sequence[AnySubAgent] = (GENERAL_PURPOSE,),
        given: Sequence[AnySubAgent] = (),
        *,
        untrusted: Sequence[Path] = (),
    ) -> None:
        self._directory = None if directory is None else directory.absolute()
        self._builtins = tuple(builtin)
        self._take(given)
        self._checks: list[WeakMethod[Callable[[SubAgent], str | None]]] = []
        self._judged: dict[str, tuple[AnySubAgent, Objection | None]] = {}
        super().__init__(untrusted)

    @property
    def subagents(self) -> Mapping[str, AnySubAgent]:
        """The subagents by name, in order of names."""
        return self._snapshot.items

    @property
    def roots(self) -> Sequence[Path]:
        """The directory, if there is one."""
        return () if self._directory is None else (self._directory,)

    @property
    def given(self) -> Sequence[AnySubAgent]:
        """Those that were made in code, besides what ships."""
        return tuple(one for one in self._given.values() if one != GENERAL_PURPOSE)

    def check_with(self, check: Callable[[SubAgent], str | None]) -> None:
        """Leave out the files of which nobody can make a subagent, and say why in `errors`.

        Agents that share a registry may differ in their tools: a file is left out when none of
        those there still are can use it. Blocks.

        Args:
            check: Returns what is wrong with a definition, or None. A method; its object is not
                kept alive.
        """
        with self._lock:
            self._checks = [one for one in self._checks if one() is not None]
            self._checks.append(WeakMethod(check))
            self._judged = {}
            self._publish()

    def use(self, directory: Path | None, given: Sequence[AnySubAgent] | None = None) -> bool:
        """Take the files from this directory from now on; return whether that changed anything.

        Blocks like `reload`.

        Args:
            directory: As for the constructor.
            given: Likewise; None leaves them as they are.

        Raises:
            AgentBuildError: Two of those that are given share a name.
        """
        self._directory = None if directory is None else directory.absolute()
        if given is not None:
            self._take(given)
        return self.reload()

    def _take(self, given: Sequence[AnySubAgent]) -> None:
        _check_given(given)
        self._given = {one.name: one for one in (*self._builtins, *given)}
        self._fixed = frozenset(one.name for one in given)

    def get(self, name: str) -> AnySubAgent:
        """Return a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        subagents = self.subagents
        if name not in subagents:
            raise self.unknown(name, subagents)
        return subagents[name]

    def unknown(self, name: str, there: Collection[str]) -> UnknownSubAgent:
        """Return the error for a name that is not among those there are; it tells of its file."""
        problems = [text for path, text in self.errors.items() if Path(path).stem == name]
        return UnknownSubAgent(" ".join([no_such("subagent", name, there), *problems]))

    def _builtin(self) -> Iterable[AnySubAgent]:
        return self._given.values()

    def _sources(self) -> Sequence[Source]:
        return [self._files.source(one, str(one)) for one in self.roots]

    def _find(self, entry: os.DirEntry[str], source: Source) -> Found | None:
        path = source.directory / entry.name
        if not entry.name.endswith(".md"):
            return None
        with suppress(RefusedLink):  # to read it says so, and keeps what it said before
            if self._files.is_directory(entry, path):
                return None
        return Found(path, source)

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        return (self._files.file_stat(found.path),)

    def _load(self, found: Found) -> AnySubAgent:
        loaded = load_subagent(found.path, self._files)
        if loaded.name in self._fixed:
            kind = type(self._given[loaded.name]).__name__
            raise DefinitionError(
                f"{found.path}: the name {loaded.name!r} is already taken by a {kind} given in "
                "code; rename one of them."
            )
        return loaded

    def _objection(self, item: AnySubAgent) -> Objection | None:
        known = self._judged.get(item.name)
        if known is None or known[0] is not item:
            known = self._judged[item.name] = item, self._judge(item)
        return known[1]

    def _judge(self, item: AnySubAgent) -> Objection | None:
        checks = [check for one in self._checks if (check := one()) is not None]
        if not checks or isinstance(item, CompiledSubAgent):
            return None
        problems = [check(item) for check in checks]
        if None in problems:
            return None
        return Objection(f"{problems[-1]} It is left out until this is fixed.", left_out=True)

    def _describe(self, item: AnySubAgent) -> tuple[str, str]:
        return item.name, item.digest


def _check_given(given: Sequence[AnySubAgent]) -> None:
    known: dict[str, AnySubAgent] = {}
    for one in given:
        if not isinstance(one, SubAgent | CompiledSubAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AgentBuildError(f"subagents are SubAgent(…) or CompiledSubAgent(…); got {one!r}")
        first = known.setdefault(one.name, one)
        if first is not one:
            raise AgentBuildError(
                f"two subagents are named {one.name!r}: {_named(first)}, and {_named(one)}; rename "
                "one of them"
            )


def _named(one: AnySubAgent) -> str:
    return f"the {type(one).__name__} that {one.description[:60]!r} describes"
