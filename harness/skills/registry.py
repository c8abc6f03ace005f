"""All skills from a list of directories, reloadable while runs are going on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..definitions.confined_files import ConfinedFiles
from ..definitions.frontmatter import DefinitionError
from ..definitions.registry import DefinitionRegistry, Objection, no_such
from ..definitions.sources import FileStat, Found, Source, identity
from ..errors import ToolError
from .definitions import MAX_BYTES, SKILL_FILE, Skill, load_skill, skill_files

__all__ = ["SkillRegistry", "UnknownSkill"]


class UnknownSkill(ToolError):
    """There is no skill of that name; the text lists those there are."""


class SkillRegistry(DefinitionRegistry[Skill]):
    """Skills by name, from directories that hold one folder per skill.

    A later source wins over an earlier one on the same name. A source that does not exist (yet)
    is empty. Folders without a SKILL.md are ignored. Safe to read from any thread.

    Args:
        sources: Directories, or pairs of a directory and the label to show for it.
        untrusted: Directories that agents can write: of a file there that is a link out of them,
            nothing is read. No link leads out of a source in any case.
    """

    kind = "skills"
    holds = "one folder per skill"

    def __init__(
        self, sources: Sequence[Path | tuple[Path, str]], *, untrusted: Sequence[Path] = ()
    ) -> None:
        self._labels = _labels(sources)
        super().__init__(untrusted)

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

    def read(self, skill: Skill, file: str) -> bytes:
        """Return a file of a skill as it is now. Blocks.

        Args:
            skill: One of these.
            file: The path of one of its `files`.

        Raises:
            DefinitionError: It is not a regular file any more, or a link leads out.
            OSError: It cannot be read.
        """
        files = self._files.also([skill.directory.parent])
        return files.read(skill.directory / file, MAX_BYTES)

    def _sources(self) -> Sequence[Source]:
        return [self._files.source(directory, label) for directory, label in self._labels.items()]

    def _files_of(self, source: Source) -> ConfinedFiles:
        return self._files.also([source.directory])

    def _find(self, entry: os.DirEntry[str], source: Source) -> Found | None:
        path = source.directory / entry.name
        if entry.name == SKILL_FILE:
            raise DefinitionError(
                f"{path}: {source.directory} is a skill itself, not a directory of skills; "
                "name its parent directory as the source."
            )
        if not self._files_of(source).is_directory(entry, path):
            return None
        if not os.path.lexists(path / SKILL_FILE):
            return None
        return Found(path / SKILL_FILE, source)

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        files = skill_files(found.path.parent, self._files_of(found.source))
        return tuple(
            FileStat(one.path, 0, 0, 0, int(one.refused), elsewhere=True)
            if one.status is None
            else identity(one.path, one.status, linked=one.linked)
            for one in sorted(files, key=lambda one: one.relative)
        )

    def _load(self, found: Found) -> Skill:
        return load_skill(found.path, label=found.source.label, files=self._files_of(found.source))

    def _objection(self, item: Skill) -> Objection | None:
        if not item.refused:
            return None
        return Objection(
            f"{', '.join(item.refused)}: links that lead out of {item.directory.parent} are not "
            "followed, so this is left out of the skill. Copy what it needs into its folder.",
            left_out=False,
        )

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
