"""Skills: folders with a SKILL.md, loaded when they are needed.

A folder is read strictly by agentskills.io. The skills of a list of directories can be reloaded
while runs are going on.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from .definitions import no_such
from .definitions.confined_files import ConfinedFiles
from .definitions.frontmatter import DefinitionError, Frontmatter, decode
from .definitions.registry import DefinitionRegistry, Objection
from .definitions.skill_files import SkillFile, skill_files
from .definitions.sources import FileStat, Found, Source, identity
from .errors import ToolError

__all__ = ["SKILL_FILE", "Skill", "SkillRegistry", "UnknownSkill", "check_name", "load_skill"]

SKILL_FILE = "SKILL.md"
MAX_BYTES = 16 * 1024 * 1024
"""What every host of skills accepts (SEP-2640): this many files and bytes per skill."""


_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAME_CHARS = 64
_DESCRIPTION_CHARS = 1_024
_COMPATIBILITY_CHARS = 500


@dataclass(frozen=True, slots=True)
class Skill:
    """A folder of instructions that an agent loads when it needs them.

    Attributes:
        name: Also the folder's name.
        description: What it does and when to use it; the only part a model always sees.
        body: The instructions, Markdown.
        path: The folder's SKILL.md.
        source: Label of the place it came from.
        license: As stated.
        compatibility: What it needs from its surroundings, as stated.
        allowed_tools: Tools it names; shown, and never a permission.
        metadata: Further properties, all text.
        frontmatter: Every field as written, as JSON data.
        files: All files of the folder, SKILL.md included, by path.
        refused: Paths of links in it that lead out of its source; they are no files of it.
        digest: A SHA-256 over all files and their names.
    """

    name: str
    description: str
    body: str
    path: Path
    source: str
    license: str | None
    compatibility: str | None
    allowed_tools: tuple[str, ...]
    metadata: Mapping[str, str]
    frontmatter: Mapping[str, JsonValue]
    files: tuple[SkillFile, ...]
    refused: tuple[str, ...] = ()
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        lines = "".join(f"{file.sha256} {file.path}\n" for file in self.files)
        digest = hashlib.sha256(f"{self.directory}\n{lines}".encode()).hexdigest()
        object.__setattr__(self, "digest", digest)

    @property
    def directory(self) -> Path:
        """The skill's folder."""
        return self.path.parent

    @property
    def needs_shell(self) -> bool:
        """Whether it is of use only where commands can be run: `needs: shell` of its metadata."""
        return "shell" in self.metadata.get("needs", "").split()


def check_name(fields: Frontmatter) -> str:
    """Return the `name` field of a skill or subagent.

    Raises:
        DefinitionError: It breaks the naming rule.
    """
    name = fields.required_text("name", limit=_NAME_CHARS)
    if not _NAME.fullmatch(name):
        fields.fail(
            "name",
            f"the name {name!r} must consist of a-z, 0-9 and single hyphens between them, "
            "such as 'reviewing-changes'.",
        )
    return name


def load_skill(path: Path, *, label: str, files: ConfinedFiles) -> Skill:
    """Read a skill from its SKILL.md and the files beside it.

    Args:
        path: The SKILL.md.
        label: What to call the source.
        files: Reads its files; the source is among its roots, so links may not lead out of that.

    Raises:
        DefinitionError: A rule is broken; the text names the file and the rule.
        OSError: A file cannot be read.
    """
    directory = path.parent
    found = list(skill_files(directory, files))
    sizes = {one.relative: one.status.st_size for one in found if one.status is not None}
    if SKILL_FILE not in sizes:
        raise DefinitionError(
            f"{path}: is not a file inside {directory.parent}; links may not lead out of the "
            "source. Copy the file there."
        )
    total = sum(sizes.values())
    if total > MAX_BYTES:
        raise DefinitionError(
            f"{directory}: the skill's files have {total:,} bytes; at most {MAX_BYTES:,} are "
            "allowed. Move large material elsewhere."
        )
    main = files.read(path, MAX_BYTES)
    fields = Frontmatter.parse(decode(main, path), path)
    name = check_name(fields)
    if name != directory.name:
        fields.fail(
            "name",
            f"the name {name!r} must equal the folder's name {directory.name!r}; "
            "rename one of them.",
        )
    return Skill(
        name=name,
        description=fields.required_text("description", limit=_DESCRIPTION_CHARS),
        body=fields.body,
        path=path,
        source=label,
        license=fields.text("license", limit=_DESCRIPTION_CHARS),
        compatibility=fields.text("compatibility", limit=_COMPATIBILITY_CHARS),
        allowed_tools=fields.names("allowed-tools") or (),
        metadata=_metadata(fields),
        frontmatter=fields.fields,
        files=tuple(
            _file(
                relative,
                main if relative == SKILL_FILE else files.read(directory / relative, MAX_BYTES),
            )
            for relative in sorted(sizes)
        ),
        refused=tuple(sorted(one.relative for one in found if one.refused)),
    )


def _file(relative: str, data: bytes) -> SkillFile:
    return SkillFile(relative, len(data), hashlib.sha256(data).hexdigest())


def _metadata(fields: Frontmatter) -> dict[str, str]:
    value = fields.fields.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, dict):
        fields.fail("metadata", "'metadata' must be a mapping such as 'author: me' lines.")
    return {
        key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        for key, one in cast(dict[str, JsonValue], value).items()
    }


class UnknownSkill(ToolError):
    """Error: no skill has that name; the text lists the skills."""


class SkillRegistry(DefinitionRegistry[Skill]):
    """Skills by name, from directories that hold one folder per skill.

    A later source wins over an earlier one on the same name. A source that does not exist (yet)
    is empty. Folders without a SKILL.md are ignored. Safe to read from any thread.

    Args:
        sources: Directories, or pairs of a directory and the label to show for it.
        untrusted: Directories that agents can write: of a file there that is a link out of them,
            nothing is read. No link leads out of a source in any case.
        has_shell: Whether agents can run commands; else skills that need that are withheld.
    """

    kind = "skills"
    holds = "one folder per skill"

    def __init__(
        self,
        sources: Sequence[Path | tuple[Path, str]],
        *,
        untrusted: Sequence[Path] = (),
        has_shell: bool = True,
    ) -> None:
        self._labels = _labels(sources)
        self._has_shell = has_shell
        super().__init__(untrusted)

    @property
    def skills(self) -> Mapping[str, Skill]:
        """The skills by name, in order of names."""
        return self.snapshot.items

    @property
    def roots(self) -> Sequence[Path]:
        """The source directories."""
        return tuple(self._labels)

    @property
    def withheld(self) -> Sequence[str]:
        """Names of skills that need what agents do not have here."""
        if self._has_shell:
            return ()
        entries = [one for listing in self._listings.values() for one in listing.entries.values()]
        found = {one.name: one.item for one in entries if one.item is not None}
        return sorted(name for name, skill in found.items() if skill.needs_shell)

    def use(
        self, sources: Sequence[Path | tuple[Path, str]], *, has_shell: bool | None = None
    ) -> bool:
        """Take the skills from these places from now on; return whether that changed anything.

        Blocks like `reload`.
        """
        self._labels = _labels(sources)
        self._has_shell = self._has_shell if has_shell is None else has_shell
        return self.reload()

    def get(self, name: str) -> Skill:
        """Return a skill.

        Raises:
            UnknownSkill: There is none of that name.
        """
        skills = self.skills
        if name not in skills:
            raise UnknownSkill(self.why_not(name, skills))
        return skills[name]

    def why_not(self, name: str, among: Collection[str]) -> str:
        """Return why a skill cannot be used: nobody has it, or it needs what agents do not have."""
        if name in self.withheld:
            return f"the skill {name!r} needs a tool that runs commands, and there is none here."
        return no_such("skill", name, among)

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

    def _is_offered(self, item: Skill) -> bool:
        return self._has_shell or not item.needs_shell

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
