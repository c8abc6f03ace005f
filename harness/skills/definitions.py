"""What a skill is, and how its folder is read (agentskills.io, strictly; peers C8.2 to C8.4)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import JsonValue

from ..definitions.frontmatter import DefinitionError, Frontmatter, decode
from ..definitions.sources import children, read_regular, require_text

__all__ = ["SKILL_FILE", "Skill", "SkillFile", "check_name", "load_skill", "skill_files"]

SKILL_FILE = "SKILL.md"
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
"""What every host of skills accepts (SEP-2640): this many files and bytes per skill."""

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NAME_CHARS = 64
_DESCRIPTION_CHARS = 1_024
_COMPATIBILITY_CHARS = 500


class SkillFile(NamedTuple):
    """A file of a skill.

    Attributes:
        path: Relative to the skill's folder, with forward slashes.
        size: In bytes.
        sha256: 64 hexadecimal digits, over the bytes on disk.
    """

    path: str
    size: int
    sha256: str


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
        allowed_tools: Tools it names; shown, and never a permission (peers C8.6).
        metadata: Further properties, all text.
        frontmatter: Every field as written, as JSON data.
        files: All files of the folder, SKILL.md included, by path.
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
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        lines = "".join(f"{file.sha256} {file.path}\n" for file in self.files)
        digest = hashlib.sha256(f"{self.directory}\n{lines}".encode()).hexdigest()
        object.__setattr__(self, "digest", digest)

    @property
    def directory(self) -> Path:
        """The skill's folder."""
        return self.path.parent


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


class SkillPath(NamedTuple):
    """A file of a skill, looked at.

    Attributes:
        relative: Its path below the skill's folder.
        real: Where it is.
        status: What the file system says of it; None for a link that leads to no file of the
            skill now and may another time.
        linked: Whether it is a link.
    """

    relative: str
    real: str
    status: os.stat_result | None
    linked: bool


def skill_files(directory: Path, confines: str) -> Iterator[SkillPath]:
    """Yield each file and link of a skill; one look at each, as thousands are scanned often.

    Hidden files and caches are left out. A link to a file counts when its target lies within
    `confines`, a real path; links to directories are not followed.

    Raises:
        DefinitionError: There are more than `MAX_FILES`, or a name is not UTF-8.
        OSError: A directory cannot be listed.
    """
    pending = [("", directory)]
    count = 0
    while pending:
        above, where = pending.pop()
        for entry in children(where):
            require_text(entry.path)
            relative = f"{above}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                pending.append((f"{relative}/", Path(entry.path)))
                continue
            linked = entry.is_symlink()
            real = os.path.realpath(entry.path) if linked else entry.path
            if linked and not Path(real).is_relative_to(confines):
                yield SkillPath(relative, entry.path, None, linked)
                continue
            try:
                status = os.stat(real)
            except OSError as error:
                if error.errno not in _NOTHING_THERE:
                    raise
                status = None  # a link to nothing, or gone meanwhile
            if status is None or not stat.S_ISREG(status.st_mode):
                if linked:
                    yield SkillPath(relative, entry.path, None, linked)
                continue
            count += 1
            if count > MAX_FILES:
                raise DefinitionError(
                    f"{directory}: the skill has more than {MAX_FILES} files, the most a skill "
                    "may have. Move what it does not need elsewhere."
                )
            yield SkillPath(relative, real, status, linked)


def load_skill(path: Path, *, source: Path, label: str) -> Skill:
    """Read a skill from its SKILL.md and the files beside it.

    Args:
        path: The SKILL.md.
        source: The directory that holds the skill's folder; links may not lead out of it.
        label: What to call the source.

    Raises:
        DefinitionError: A rule is broken; the text names the file and the rule.
        OSError: A file cannot be read.
    """
    directory = path.parent
    found = list(skill_files(directory, os.path.realpath(source)))
    sizes = {one.relative: one.status.st_size for one in found if one.status is not None}
    contents = {one.relative: Path(one.real) for one in found if one.status is not None}
    if SKILL_FILE not in contents:
        raise DefinitionError(
            f"{path}: is not a file inside {source}; links may not lead out of the source. "
            "Copy the file there."
        )
    total = sum(sizes.values())
    if total > MAX_BYTES:
        raise DefinitionError(
            f"{directory}: the skill's files have {total:,} bytes; at most {MAX_BYTES:,} are "
            "allowed. Move large material elsewhere."
        )
    main = read_regular(contents[SKILL_FILE], MAX_BYTES)
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
            _file(relative, main if relative == SKILL_FILE else read_regular(real, MAX_BYTES))
            for relative, real in sorted(contents.items())
        ),
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
