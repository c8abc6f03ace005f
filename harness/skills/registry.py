"""All skills from a list of directories, reloadable while runs are going on (peers C8.1, E16)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..definitions.frontmatter import DefinitionError
from ..definitions.registry import DefinitionRegistry, no_such
from ..definitions.sources import FileStat, Found, Source, identity
from ..errors import ToolError
from .definitions import SKILL_FILE, Skill, load_skill, skill_files

__all__ = ["SkillRegistry", "UnknownSkill"]


class UnknownSkill(ToolError):
    """There is no skill of that name; the text lists those there are."""


class SkillRegistry(DefinitionRegistry[Skill]):
    """Skills by name, from directories that hold one folder per skill.

    A later source wins over an earlier one on the same name. A source that does not exist (yet)
    is empty. Folders without a SKILL.md are ignored. Safe to read from any thread.

    Args:
        sources: Directories, or pairs of a directory and the label to show for it.
    """

    kind = "skills"
    holds = "one folder per skill"

    def __init__(self, sources: Sequence[Path | tuple[Path, str]]) -> None:
        self._labels = _labels(sources)
        super().__init__()

    @property
    def skills(self) -> Mapping[str, Skill]:
        """The skills by name, in order of names."""
        return self._snapshot.items

    @property
    def roots(self) -> Sequence[Path]:
        """The source directories."""
        return tuple(self._labels)

    def use(self, sources: Sequence[Path | tuple[Path, str]]) -> bool:
        """Take the skills from these places from now on; return whether that changed anything.

        Blocks like `reload`.
        """
        self._labels = _labels(sources)
        return self.reload()

    def get(self, name: str) -> Skill:
        """Return a skill.

        Raises:
            UnknownSkill: There is none of that name.
        """
        skills = self.skills
        if name not in skills:
            raise UnknownSkill(no_such("skill", name, skills))
        return skills[name]

    def _sources(self) -> Sequence[Source]:
        return [Source.of(directory, label) for directory, label in self._labels.items()]

    def _find(self, entry: os.DirEntry[str], source: Source) -> Found | None:
        if entry.name == SKILL_FILE:
            raise DefinitionError(
                f"{entry.path}: {source.directory} is a skill itself, not a directory of skills; "
                "name its parent directory as the source."
            )
        if not entry.is_dir():
            return None
        if entry.is_symlink() and not Path(os.path.realpath(entry.path)).is_relative_to(
            source.real
        ):
            raise DefinitionError(
                f"{entry.path}: links that lead out of the source are not followed. Copy the "
                "folder, or name the directory it is in as a further source."
            )
        if not os.path.lexists(f"{entry.path}/{SKILL_FILE}"):
            return None
        return Found(Path(entry.path) / SKILL_FILE, source)

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        files = skill_files(found.path.parent, found.source.real)
        return tuple(
            FileStat(one.real, 0, 0, 0, 0, elsewhere=True)
            if one.status is None
            else identity(one.real, one.status, linked=one.linked)
            for one in sorted(files, key=lambda one: one.relative)
        )

    def _load(self, found: Found) -> Skill:
        source = found.source
        return load_skill(found.path, source=source.directory, label=source.label)

    def _describe(self, item: Skill) -> tuple[str, str]:
        return item.name, item.digest


def _labels(sources: Sequence[Path | tuple[Path, str]]) -> dict[Path, str]:
    """Return the label of each source, those that win last; one named twice counts at its last."""
    labels: dict[Path, str] = {}
    for one in sources:
        path, label = one if isinstance(one, tuple) else (one, str(one))
        labels.pop(path.absolute(), None)
        labels[path.absolute()] = label
    return labels
