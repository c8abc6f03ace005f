"""Skill import: checks a directory or an archive before installing skills from it.

An archive is unpacked into a temporary place, within the limits of a skill, without links and paths
that leave it. Only the files of the format are copied, all of them or none.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO
from uuid import uuid4

from ...harness.definitions.confined_files import ConfinedFiles
from ...harness.definitions.frontmatter import DefinitionError
from ...harness.definitions.skill_files import MAX_FILES
from ...harness.skills import MAX_BYTES, SKILL_FILE, Skill, load_skill

__all__ = ["ARCHIVES", "SkillImportError", "executables", "skills_in", "take_in", "unpacked"]

ARCHIVES = (".zip", ".skill", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
"""Endings of archives that can be read; a `.skill` file is a zip archive."""

_MOST_SKILLS = 64
_MOST_BYTES = _MOST_SKILLS * MAX_BYTES
_MOST_FILES = _MOST_SKILLS * MAX_FILES
_DEPTH = 4
_CHUNK = 1 << 20
_RUN = re.compile(
    r"\.(bash|bat|bin|class|cmd|com|dll|dylib|exe|fish|jar|jse?|lua|mjs|msi|php|pl|ps1|psm1|pyc?|rb"
    r"|scpt|sh|so|swift|ts|vbs|wasm|wsf|zsh)$",
    re.IGNORECASE,
)
_MAGIC = (b"#!", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\x00asm")


class SkillImportError(Exception):
    """A source cannot be imported; the text says why. Nothing was stored."""


def unpacked(source: Path, place: Path) -> Path:
    """Return a directory with the contents of a source.

    Args:
        source: A directory, which is returned as it is, or an archive.
        place: An empty directory for the contents of an archive.

    Raises:
        SkillImportError: It is neither, is damaged, or exceeds the limits of skills.
    """
    if source.is_dir():
        return source
    if not source.is_file():
        raise SkillImportError(f"{source}: there is no such directory or archive.")
    name = source.name.lower()
    ending = next((one for one in sorted(ARCHIVES, key=len)[::-1] if name.endswith(one)), None)
    if ending is None:
        raise SkillImportError(
            f"{source}: not a directory or an archive. Archives end in {', '.join(ARCHIVES)}."
        )
    # A skill may be at the top of its archive; then its folder is named like the archive.
    inside = place / source.name[: -len(ending)]
    inside.mkdir(parents=True)
    try:
        if ending in (".zip", ".skill"):
            _unzip(source, inside)
        else:
            _untar(source, inside)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, RuntimeError) as error:
        raise SkillImportError(f"{source}: cannot be unpacked: {error}.") from error
    return inside


def _unzip(source: Path, place: Path) -> None:
    with zipfile.ZipFile(source) as archive:
        entries = [one for one in archive.infolist() if not one.is_dir()]
        _require_bounds(source, len(entries), sum(one.file_size for one in entries))
        for one in entries:
            if (one.external_attr >> 16) & 0o170000 == 0o120000:
                raise SkillImportError(
                    f"{source}: {one.filename} is a link; links in archives are not allowed."
                )
            path = _inside(source, place, one.filename)
            with archive.open(one) as data, path.open("wb") as file:
                if not _copied(data, file, one.file_size):
                    raise SkillImportError(
                        f"{source}: {one.filename} is larger than the archive declares."
                    )
            if (one.external_attr >> 16) & 0o111:
                path.chmod(0o755)


def _copied(data: IO[bytes], file: IO[bytes], size: int) -> bool:
    """Copy at most this many bytes; return whether that was everything."""
    left = size
    while part := data.read(min(_CHUNK, left + 1)):
        left -= len(part)
        if left < 0:
            return False
        file.write(part)
    return True


def _untar(source: Path, place: Path) -> None:
    with tarfile.open(source) as archive:
        count = size = 0
        for one in archive:  # read once, so that nothing is unpacked beyond the bounds
            if one.isdir():
                continue
            if not one.isfile():
                raise SkillImportError(f"{source}: {one.name} is not a regular file or directory.")
            count, size = count + 1, size + one.size
            _require_bounds(source, count, size)
            path = _inside(source, place, one.name)
            data = archive.extractfile(one)
            assert data is not None
            with data, path.open("wb") as file:
                shutil.copyfileobj(data, file, _CHUNK)
            path.chmod(0o755 if one.mode & 0o111 else 0o644)


def _require_bounds(source: Path, count: int, size: int) -> None:
    if count > _MOST_FILES or size > _MOST_BYTES:
        raise SkillImportError(
            f"{source}: holds more than {_MOST_FILES:,} files or {_MOST_BYTES >> 20:,} MiB. "
            "Unpack it yourself, and name the directories of the skills you want."
        )


def _inside(source: Path, place: Path, name: str) -> Path:
    """Return the path to unpack a file of an archive to, and make its directory."""
    path = Path(os.path.normpath(place / name.replace("\\", "/")))
    if not path.is_relative_to(place) or path == place:
        raise SkillImportError(f"{source}: {name} leads out of the archive.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def skills_in(directory: Path) -> Sequence[Skill]:
    """Return the skills below a directory, which may be one itself.

    Raises:
        SkillImportError: There are none or too many, or one breaks a rule of the format.
    """
    found: list[Skill] = []
    for path in _skill_files(directory, _DEPTH):
        if len(found) == _MOST_SKILLS:
            raise SkillImportError(f"{directory}: holds more than {_MOST_SKILLS} skills.")
        files = ConfinedFiles((path.parent,))
        try:
            skill = load_skill(path, label=str(directory), files=files)
        except (DefinitionError, OSError) as error:
            raise SkillImportError(str(error)) from error
        if skill.refused:
            raise SkillImportError(
                f"{skill.directory}: {', '.join(skill.refused)} leads out of the skill. Copy what "
                "it needs into its folder."
            )
        found.append(skill)
    if not found:
        raise SkillImportError(f"{directory}: there is no {SKILL_FILE} in it.")
    return sorted(found, key=lambda one: one.name)


def _skill_files(directory: Path, depth: int) -> Iterator[Path]:
    path = directory / SKILL_FILE
    if path.is_file():
        yield path
        return
    if depth:
        for below in sorted(directory.iterdir()):
            if below.is_dir() and not below.is_symlink() and not below.name.startswith("."):
                yield from _skill_files(below, depth - 1)


def executables(skill: Skill) -> Sequence[str]:
    """Return the files of a skill that a person or an agent could run as programs."""
    return [one.path for one in skill.files if _can_run(skill.directory / one.path)]


def _can_run(path: Path) -> bool:
    if _RUN.search(path.name) or (os.name == "posix" and path.stat().st_mode & 0o111):
        return True
    with path.open("rb") as file:
        return file.read(4).startswith(_MAGIC)


def take_in(skill: Skill, target: Path, *, replace: bool = False) -> Path:
    """Copy a skill into a directory of skills, all of it or nothing; return its new folder.

    Args:
        skill: One of `skills_in`.
        target: The directory with one folder for each skill; created if missing.
        replace: Whether a skill with the same name may be replaced.

    Raises:
        SkillImportError: A skill with its name exists, or it cannot be written.
    """
    place = target / skill.name
    if place.exists() and not replace:
        raise SkillImportError(f"{place} is there already. Use --replace to replace it.")
    new = target / f".{skill.name}-{uuid4().hex[:8]}"
    try:
        for one in skill.files:
            path = new / one.path
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(skill.directory / one.path, path)
            if (skill.directory / one.path).stat().st_mode & 0o111:
                path.chmod(0o755)
        if place.exists():
            old = target / f".{skill.name}-{uuid4().hex[:8]}"
            place.rename(old)
            try:
                new.rename(place)
            except OSError:
                old.rename(place)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            new.rename(place)
    except OSError as error:
        raise SkillImportError(f"{place}: cannot be written: {error}.") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return place
