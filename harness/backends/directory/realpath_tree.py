"""Confinement by checked real paths, for platforms without directory descriptors.

Each operation resolves the path with all of its links and refuses paths outside the root. Another
program of the same user could replace a link between the check and the use. The check protects
against mistakes and against models, but not against that program.
"""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import PurePath

from ..._internal import is_unicode
from ..base import MAX_DEPTH, FileEntry, FileError, PathTest, changed, every_path
from .tree import (
    WRITE_FLAGS,
    FileMetadata,
    Leaf,
    Present,
    file_errors,
    opened_regular,
    pinned_place,
    read_open,
    read_regular,
    require_deletable,
    require_same,
    require_shallow,
    require_writable,
    version,
)

__all__ = ["RealpathTree", "windows_problem"]

_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[\d¹²³]|lpt[\d¹²³]|conin\$|conout\$)\s*(\..*)?$")
_FORBIDDEN = re.compile(r'[<>:"|?*\x01-\x1f]')


def windows_problem(name: str) -> str | None:
    """Return why a name is not a plain file for Windows, or None.

    Device names, alternate streams (`a.txt:x`) and trailing dots or spaces would reach a different
    file from the one the policy judged.
    """
    if _RESERVED.match(name):
        return "it is the name of a device"
    if _FORBIDDEN.search(name):
        return "it holds a character that Windows does not allow"
    if name.endswith((".", " ")):
        return "Windows drops dots and spaces at the end of a name"
    return None


class RealpathTree:
    """A `Tree` on checked real paths."""

    def __init__(
        self, root: str, pins: Mapping[str, str] | None = None, *, windows: bool = os.name == "nt"
    ) -> None:
        self._root = root
        self._pins: Mapping[str, str] = pins or {}
        self._windows = windows

    def pinned(self, path: str, place: str) -> RealpathTree:
        """See `Tree`."""
        pins = {**self._pins, path: place}
        return RealpathTree(self._root, pins, windows=self._windows)

    def read(self, path: str, limit: int) -> bytes:
        """See `Tree`."""
        with file_errors(path):
            return read_regular(self._real(path), path, limit)

    def is_dir(self, path: str) -> bool:
        """See `Tree`."""
        with file_errors(path):
            return stat.S_ISDIR(os.stat(self._real(path)).st_mode)

    def children(self, path: str) -> list[FileEntry]:
        """See `Tree`."""
        with file_errors(path), os.scandir(self._real(path)) as entries:
            return [self._entry(path, entry) for entry in entries if is_unicode(entry.name)]

    def walk(self, path: str, wanted: PathTest = every_path) -> Iterator[Leaf]:
        """See `Tree`."""
        with file_errors(path):
            yield from _walk(self._real(path), path.rstrip("/"), 0, wanted)

    def pick(self, paths: Iterable[str]) -> Iterator[Leaf]:
        """See `Tree`."""
        for parent, group in groupby(paths, key=lambda path: path.rpartition("/")[0]):
            try:
                real = self._real(parent or "/")
            except (OSError, FileError):
                continue
            for path in group:
                yield Leaf(path, os.path.join(real, path.rpartition("/")[2]))

    def present(self, path: str, limit: int, *, create: bool = False) -> Present:
        """See `Tree`."""
        with file_errors(path):
            real = self._real(path)
            if create:
                os.makedirs(os.path.dirname(real), exist_ok=True)
                real = self._real(path)
            elif not os.path.isdir(os.path.dirname(real)):
                os.stat(os.path.dirname(real))
                raise NotADirectoryError(20, "not a directory")
            try:
                data = read_regular(real, path, limit)
            except FileNotFoundError:
                data = None
            return Present(self._virtual(real), data)

    def replace(self, present: Present, data: bytes) -> None:
        """See `Tree`."""
        with file_errors(present.path):
            real = self._real(present.path)
            os.makedirs(os.path.dirname(real), exist_ok=True)
            kept = self._require_same(real, present)
            if kept is not None:
                require_writable(real, present.path)
            temporary = os.path.join(os.path.dirname(real), f".~{secrets.token_hex(8)}.tmp")
            fd = os.open(temporary, WRITE_FLAGS, 0o666)
            try:
                with open(fd, "wb") as file:
                    if kept is not None:
                        kept.give(fd)
                    file.write(data)
                if kept is not None and version(os.lstat(real)) != kept.version:
                    raise changed(present.path)
                os.replace(temporary, real)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise

    def remove(self, present: Present) -> None:
        """See `Tree`."""
        with file_errors(present.path):
            real = self._real(present.path)
            self._require_same(real, present)
            os.unlink(real)

    def remove_empty(self, path: str) -> None:
        """See `Tree`."""
        with file_errors(path):
            for base, _, _ in os.walk(self._real(path), topdown=False):
                os.rmdir(base)

    def contents(self, path: str, limit: int) -> Sequence[Present]:
        """See `Tree`."""
        found: list[Present] = []
        with file_errors(path):
            for base, dirs, files in os.walk(self._real(path), onerror=_refuse):
                require_shallow(path, self._virtual(base).count("/") - path.count("/"))
                for name in (*dirs, *files):
                    real = os.path.join(base, name)
                    below = self._virtual(real)
                    if require_deletable(below, os.lstat(real)):
                        data = read_regular(real, below, limit)
                        limit -= len(data)
                        found.append(Present(below, data))
        return found

    def _require_same(self, real: str, present: Present) -> FileMetadata | None:
        try:
            with opened_regular(real, present.path) as fd:
                kept = FileMetadata.of(fd)
                data = read_open(fd, present.path, len(present.data or b""))
        except FileNotFoundError:
            require_same(present, None)
            return None
        except FileError as error:
            if error.code != "too_large":
                raise
            raise changed(present.path) from error
        require_same(present, data)
        return kept

    def _entry(self, path: str, entry: os.DirEntry[str]) -> FileEntry:
        full = posixpath.join(path, entry.name)
        try:
            status = os.stat(RealpathTree(self._root, windows=self._windows)._real(full))
        except (OSError, FileError):
            return FileEntry(full)
        if stat.S_ISDIR(status.st_mode):
            return FileEntry(full, is_dir=True, modified=status.st_mtime)
        return FileEntry(full, size=status.st_size, modified=status.st_mtime)

    def _real(self, path: str) -> str:
        """Return the real path, links resolved; raise `permission_denied` outside of the root."""
        names = path.split("/")[1:] if path != "/" else []
        for name in names if self._windows else ():
            problem = windows_problem(name)
            if problem is not None:
                raise FileError("invalid_path", path, f"{path}: {problem}. Nothing was done.")
        real = os.path.realpath(os.path.join(self._root, *names))
        if not PurePath(real).is_relative_to(self._root):
            raise FileError(
                "permission_denied",
                path,
                f"{path} is, or passes through, a link that leads out of the files. "
                "Nothing was done.",
            )
        if pinned_place(self._pins, path) not in (None, self._virtual(real)):
            raise changed(path)
        return real

    def _virtual(self, real: str) -> str:
        below = os.path.relpath(real, self._root).replace(os.sep, "/")
        return "/" if below == "." else "/" + below


def _refuse(error: OSError) -> None:
    raise error


def _walk(directory: str, prefix: str, depth: int, wanted: PathTest) -> Iterator[Leaf]:
    try:
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        if depth == 0:
            raise
        return  # gone or unreadable since
    for entry in entries:
        if not is_unicode(entry.name):
            continue
        path = f"{prefix}/{entry.name}"
        if entry.is_file(follow_symlinks=False):
            if wanted(path):
                yield Leaf(path, entry.path)
        elif depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False) and not _junction(entry):
            yield from _walk(entry.path, path, depth + 1, wanted)


def _junction(entry: os.DirEntry[str]) -> bool:
    """Whether a directory is a Windows junction, which is a kind of link."""
    tag = getattr(entry.stat(follow_symlinks=False), "st_reparse_tag", 0)
    return tag == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)
