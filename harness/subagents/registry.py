"""All subagents from a directory of Markdown files, reloadable while runs are going on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..definitions.frontmatter import DefinitionError
from ..definitions.registry import DefinitionRegistry, no_such
from ..definitions.sources import FileStat, Found, Source, file_stat
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
            takes their place (peers C6.3).
        given: Further subagents, made in code. A file of the same name is an error.

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
    ) -> None:
        self._directory = None if directory is None else directory.absolute()
        _check_given(given)
        self._given = {one.name: one for one in (*builtin, *given)}
        self._fixed = frozenset(one.name for one in given)
        super().__init__()

    @property
    def subagents(self) -> Mapping[str, AnySubAgent]:
        """The subagents by name, in order of names."""
        return self._snapshot.items

    @property
    def roots(self) -> Sequence[Path]:
        """The directory, if there is one."""
        return () if self._directory is None else (self._directory,)

    def use(self, directory: Path | None) -> bool:
        """Take the files from this directory from now on; return whether that changed anything.

        Blocks like `reload`.
        """
        self._directory = None if directory is None else directory.absolute()
        return self.reload()

    def get(self, name: str) -> AnySubAgent:
        """Return a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        subagents = self.subagents
        if name not in subagents:
            raise UnknownSubAgent(no_such("subagent", name, subagents))
        return subagents[name]

    def _builtin(self) -> Iterable[AnySubAgent]:
        return self._given.values()

    def _sources(self) -> Sequence[Source]:
        return [Source.of(one, str(one)) for one in self.roots]

    def _find(self, entry: os.DirEntry[str], source: Source) -> Found | None:
        if not entry.name.endswith(".md") or entry.is_dir():
            return None
        return Found(Path(entry.path), source)

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        return (file_stat(found.path),)

    def _load(self, found: Found) -> AnySubAgent:
        loaded = load_subagent(found.path)
        if loaded.name in self._fixed:
            kind = type(self._given[loaded.name]).__name__
            raise DefinitionError(
                f"{found.path}: the name {loaded.name!r} is already taken by a {kind} given in "
                "code; rename one of them."
            )
        return loaded

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
