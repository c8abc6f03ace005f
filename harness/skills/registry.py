"""All skills from a list of directories, reloadable while runs are going on (peers C8.1, E16)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.definition_files import (
    DefinitionRegistry,
    FileStat,
    Found,
    children,
    identity,
    no_such,
)
from harness.errors import ToolError
from harness.skills.definitions import SKILL_FILE, Skill, load_skill, skill_files

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

    def __init__(self, sources: Sequence[Path | tuple[Path, str]]) -> None:
        pairs = [one if isinstance(one, tuple) else (one, str(one)) for one in sources]
        self._sources = {
            str(place): (path.absolute(), label) for place, (path, label) in enumerate(pairs)
        }
        self._confines: dict[str, str] = {}
        super().__init__()

    @property
    def skills(self) -> Mapping[str, Skill]:
        """The skills by name, in order of names."""
        return self._snapshot.items

    @property
    def roots(self) -> Sequence[Path]:
        """The source directories."""
        return tuple(path for path, _ in self._sources.values())

    def get(self, name: str) -> Skill:
        """Return a skill.

        Raises:
            UnknownSkill: There is none of that name.
        """
        skills = self.skills
        if name not in skills:
            raise UnknownSkill(no_such("skill", name, skills))
        return skills[name]

    def _find(self, errors: dict[str, str]) -> Iterable[Found]:
        for key, (source, _) in self._sources.items():
            try:
                yield from self._find_in(source, key, errors)
            except FileNotFoundError:
                continue
            except OSError as error:
                errors[str(source)] = (
                    f"{source}: skills cannot be searched here ({error.strerror or error}); "
                    "name a directory that holds one folder per skill."
                )

    def _find_in(self, source: Path, key: str, errors: dict[str, str]) -> Iterable[Found]:
        confines = self._confines[key] = os.path.realpath(source)
        for entry in children(source):
            if not entry.is_dir() and entry.name != SKILL_FILE:
                continue
            path = Path(entry.path)
            if entry.name == SKILL_FILE:
                errors[str(path)] = (
                    f"{path}: {source} is a skill itself, not a directory of skills; name its "
                    "parent directory as the source."
                )
            elif entry.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(confines):
                errors[str(path)] = (
                    f"{path}: links that lead out of the source are not followed. Copy the "
                    "folder, or name the directory it is in as a further source."
                )
            elif os.path.lexists(f"{entry.path}/{SKILL_FILE}"):
                yield Found(path / SKILL_FILE, key)

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        files = skill_files(found.path.parent, self._confines[found.source])
        return tuple(identity(one.real, one.status) for one in sorted(files))

    def _load(self, found: Found) -> Skill:
        source, label = self._sources[found.source]
        return load_skill(found.path, source=source, label=label)

    def _describe(self, item: Skill) -> tuple[str, str]:
        return item.name, item.digest
