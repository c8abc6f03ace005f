"""Files of a skill's folder: their listing, with limits, and their paths."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .confined_files import ConfinedFiles, RefusedLink
from .frontmatter import DefinitionError
from .sources import require_text

__all__ = ["MAX_FILES", "SkillFile", "skill_files"]

MAX_FILES = 512

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class SkillFile(NamedTuple):
    """A file of a skill.

    Attributes:
        path: Relative to the skill's folder, with forward slashes.
        size: Size in bytes.
        sha256: Hash of the bytes on disk, as 64 hexadecimal digits.
    """

    path: str
    size: int
    sha256: str


class SkillPath(NamedTuple):
    """A file or link of a skill, with its status.

    Attributes:
        relative: Path relative to the skill's folder.
        path: Full path.
        status: Status in the file system; None for a link that leads to no usable file now, but
            may do so later.
        linked: Whether it is a link.
        refused: Whether it is a link that leads out of the source.
    """

    relative: str
    path: str
    status: os.stat_result | None
    linked: bool
    refused: bool = False


def skill_files(directory: Path, files: ConfinedFiles) -> Iterator[SkillPath]:
    """Yield each file and link of a skill, with one status check each: scans are frequent.

    Hidden files and caches are skipped. A link to a file counts if `files` follows it; links to
    directories are not followed.

    Raises:
        DefinitionError: There are more than `MAX_FILES`, or a name is not UTF-8.
        OSError: A directory cannot be listed.
    """
    pending = [""]
    count = 0
    while pending:
        above = pending.pop()
        with files.entries(directory / above) as there:
            for entry in there:
                relative = f"{above}{entry.name}"
                path = f"{directory}{os.sep}{relative}"
                require_text(path)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{relative}/")
                    continue
                found = _looked_at(entry, relative, path, files)
                if found is None:
                    continue
                count += found.status is not None
                if count > MAX_FILES:
                    raise DefinitionError(
                        f"{directory}: the skill has more than {MAX_FILES} files, the most a "
                        "skill may have. Move what it does not need elsewhere."
                    )
                yield found


def _looked_at(
    entry: os.DirEntry[str], relative: str, path: str, files: ConfinedFiles
) -> SkillPath | None:
    """Return a file or link of a skill; None for anything else."""
    linked = entry.is_symlink()
    try:
        status = files.status(Path(path)) if linked else entry.stat(follow_symlinks=False)
    except RefusedLink:
        return SkillPath(relative, path, None, linked, refused=True)
    except OSError as error:
        if error.errno not in _NOTHING_THERE:
            raise
        status = None  # a link to nothing, or gone meanwhile
    if status is None or not stat.S_ISREG(status.st_mode):
        return SkillPath(relative, path, None, linked) if linked else None
    return SkillPath(relative, path, status, linked)
