"""All subagents from a directory of Markdown files, reloadable while runs are going on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.definition_files import (
    DefinitionRegistry,
    FileStat,
    Found,
    children,
    file_stat,
    no_such,
)
from harness.errors import ToolError
from harness.subagents.definitions import GENERAL_PURPOSE, SubAgent, load_subagent

__all__ = ["SubAgentRegistry", "UnknownSubAgent"]


class UnknownSubAgent(ToolError):
    """There is no subagent of that name; the text lists those there are."""


class SubAgentRegistry(DefinitionRegistry[SubAgent]):
    """Subagents by name. Safe to read from any thread.

    Args:
        directory: Holds one `*.md` file per subagent; it need not exist yet. None for no files.
        builtin: Subagents that are always there; a file of the same name wins (peers C6.3).
    """

    def __init__(
        self, directory: Path | None, builtin: Sequence[SubAgent] = (GENERAL_PURPOSE,)
    ) -> None:
        self._directory = None if directory is None else directory.absolute()
        self._given = tuple(builtin)
        super().__init__()

    @property
    def subagents(self) -> Mapping[str, SubAgent]:
        """The subagents by name, in order of names."""
        return self._snapshot.items

    @property
    def roots(self) -> Sequence[Path]:
        """The directory, if there is one."""
        return () if self._directory is None else (self._directory,)

    def get(self, name: str) -> SubAgent:
        """Return a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        subagents = self.subagents
        if name not in subagents:
            raise UnknownSubAgent(no_such("subagent", name, subagents))
        return subagents[name]

    def _builtin(self) -> Iterable[SubAgent]:
        return self._given

    def _find(self, errors: dict[str, str]) -> Iterable[Found]:
        if self._directory is None:
            return
        try:
            for entry in children(self._directory):
                if entry.name.endswith(".md") and not entry.is_dir():
                    yield Found(Path(entry.path), str(self._directory))
        except FileNotFoundError:
            return
        except OSError as error:
            errors[str(self._directory)] = (
                f"{self._directory}: subagents cannot be searched here "
                f"({error.strerror or error}); name a directory that holds one Markdown file per "
                "subagent."
            )

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        return (file_stat(found.path),)

    def _load(self, found: Found) -> SubAgent:
        return load_subagent(found.path)

    def _describe(self, item: SubAgent) -> tuple[str, str]:
        return item.name, item.digest
