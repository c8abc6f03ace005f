"""Confinement by directory descriptors (POSIX).

Every path is walked from the root's descriptor one name at a time; the kernel never follows a link.
Links are read and walked by the same rules, so a link that stays inside works and one that leaves
the root is refused, even if it is created between two system calls.
"""

from __future__ import annotations

import os
import posixpath
import secrets
import stat
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from operator import attrgetter

from ..._internal import is_unicode
from ..._internal.records import record
from ..base import MAX_DEPTH, FileEntry, FileError, PathTest, changed, every_path, prefix_of
from .tree import (
    READ_FLAGS,
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

assert sys.platform != "win32", "Windows has no descriptors of directories"

__all__ = ["DescriptorTree"]

_DIR_FLAGS = READ_FLAGS | os.O_DIRECTORY
_MAX_LINKS = 40
_NAME = attrgetter("name")


@record
class _Place:
    """A name in an open directory. `name` is `.` for the directory itself."""

    fd: int
    name: str
    path: str


class DescriptorTree:
    """A `Tree` on directory descriptors."""

    def __init__(self, root: str, pins: Mapping[str, str] | None = None) -> None:
        self._root = root
        self._pins: Mapping[str, str] = pins or {}

    def pinned(self, path: str, place: str) -> DescriptorTree:
        """See `Tree`."""
        return DescriptorTree(self._root, {**self._pins, path: place})

    def read(self, path: str, limit: int) -> bytes:
        """See `Tree`."""
        with file_errors(path), self._at(path) as place:
            return read_regular(place.name, path, limit, dir_fd=place.fd)

    def is_dir(self, path: str) -> bool:
        """See `Tree`."""
        with file_errors(path):
            return stat.S_ISDIR(self._status(path).st_mode)

    def children(self, path: str) -> list[FileEntry]:
        """See `Tree`."""
        with file_errors(path), self._directory(path) as fd, os.scandir(fd) as entries:
            return [self._entry(path, entry) for entry in entries if is_unicode(entry.name)]

    def walk(self, path: str, wanted: PathTest = every_path) -> Iterator[Leaf]:
        """See `Tree`."""
        with file_errors(path), self._directory(path) as fd:
            yield from _walk(fd, path.rstrip("/"), 0, wanted)

    def pick(self, paths: Iterable[str]) -> Iterator[Leaf]:
        """See `Tree`."""
        for parent, group in groupby(paths, key=lambda path: path.rpartition("/")[0]):
            with ExitStack() as stack:
                try:
                    fd = stack.enter_context(self._directory(parent or "/"))
                except (OSError, FileError):
                    continue
                for path in group:
                    yield Leaf(path, path.rpartition("/")[2], fd)

    def present(self, path: str, limit: int, *, create: bool = False) -> Present:
        """See `Tree`."""
        with file_errors(path), self._at(path, create=create) as place:
            try:
                data = read_regular(place.name, path, limit, dir_fd=place.fd)
            except FileNotFoundError:
                data = None
            return Present(place.path, data)

    def replace(self, present: Present, data: bytes) -> None:
        """See `Tree`."""
        path = present.path
        with file_errors(path), self._at(path, create=True, links=0) as place:
            temporary = f".~{secrets.token_hex(8)}.tmp"
            kept = self._require_same(place, present)
            if kept is not None:
                require_writable(place.name, path, dir_fd=place.fd)
            fd = os.open(temporary, WRITE_FLAGS, 0o666, dir_fd=place.fd)
            try:
                with open(fd, "wb", buffering=0) as file:
                    if kept is not None:
                        kept.give(fd)
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                if kept is not None:
                    _require_version(place, kept)
                if kept is not None or not _put_new(temporary, place):
                    os.replace(temporary, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=place.fd)
                raise

    def remove(self, present: Present) -> None:
        """See `Tree`."""
        with file_errors(present.path), self._at(present.path, links=0) as place:
            self._require_same(place, present)
            os.unlink(place.name, dir_fd=place.fd)

    def remove_empty(self, path: str) -> None:
        """See `Tree`."""
        with file_errors(path), self._at(path, links=0) as place:
            _remove_empty(place.fd, place.name)

    def contents(self, path: str, limit: int) -> Sequence[Present]:
        """See `Tree`."""
        found: list[Present] = []
        with file_errors(path), self._at(path) as place:
            fd = os.open(place.name, _DIR_FLAGS, dir_fd=place.fd)
            try:
                for base, dirs, files, base_fd in os.fwalk(".", onerror=_refuse, dir_fd=fd):
                    require_shallow(place.path, base.count("/"))
                    for name in (*dirs, *files):
                        below = posixpath.normpath(f"{place.path}/{base}/{name}")
                        status = os.stat(name, dir_fd=base_fd, follow_symlinks=False)
                        if require_deletable(below, status):
                            data = read_regular(name, below, limit, dir_fd=base_fd)
                            limit -= len(data)
                            found.append(Present(below, data))
            finally:
                os.close(fd)
        return found

    def _require_same(self, place: _Place, present: Present) -> FileMetadata | None:
        """Return the file's attributes to keep, or None; raise if it is not `present`."""
        try:
            with opened_regular(place.name, place.path, dir_fd=place.fd) as fd:
                kept = FileMetadata.of(fd)  # first, so that writes in between are noticed
                data = read_open(fd, place.path, len(present.data or b""))
        except FileNotFoundError:
            require_same(present, None)
            return None
        except FileError as error:
            if error.code != "too_large":
                raise
            raise changed(place.path) from error
        require_same(present, data)
        return kept

    def _entry(self, path: str, entry: os.DirEntry[str]) -> FileEntry:
        full = f"{path.rstrip('/')}/{entry.name}"
        try:
            if entry.is_symlink():  # its target is only described, wherever it is
                status = DescriptorTree(self._root)._status(full)
            else:
                status = entry.stat(follow_symlinks=False)
        except (OSError, FileError):
            return FileEntry(full)
        if stat.S_ISDIR(status.st_mode):
            return FileEntry(full, is_dir=True, modified=status.st_mtime)
        return FileEntry(full, size=status.st_size, modified=status.st_mtime)

    def _status(self, path: str) -> os.stat_result:
        with self._at(path) as place:
            return os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)

    @contextmanager
    def _directory(self, path: str) -> Generator[int]:
        with self._at(path) as place:
            fd = os.open(place.name, _DIR_FLAGS, dir_fd=place.fd)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _at(self, path: str, *, create: bool = False, links: int = _MAX_LINKS) -> Generator[_Place]:
        """Walk to the directory that contains the last name of `path`, links resolved."""
        walk = _Walk(self._root, path, links, pinned_place(self._pins, path))
        try:
            yield walk.go(create=create)
        finally:
            walk.close()


class _Walk:
    """The way from the root to one place; holds the descriptors of all directories on it."""

    def __init__(self, root: str, path: str, links: int, place: str | None) -> None:
        self._root = root.rstrip("/")
        self._path = path
        self._links = links
        self._place = place
        self._fds = [os.open(root, _DIR_FLAGS)]
        self._names: list[str] = []
        self._todo = self._parts(path)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def go(self, *, create: bool) -> _Place:
        while self._todo:
            name = self._todo.pop()
            if name == "..":
                self._up()
            elif (target := _link(name, self._fds[-1])) is not None:
                self._follow(target)
            elif self._todo:
                self._enter(name, create=create)
            else:
                return self._found(name, [*self._names, name])
        return self._found(".", self._names)

    def _found(self, name: str, names: Sequence[str]) -> _Place:
        path = "/" + "/".join(names)
        if self._place not in (None, path):
            raise changed(self._path)
        return _Place(self._fds[-1], name, path)

    def _enter(self, name: str, *, create: bool) -> None:
        self._names.append(name)
        try:
            fd = os.open(name, _DIR_FLAGS, dir_fd=self._fds[-1])
        except FileNotFoundError:
            if not create:
                raise
            made = "/" + "/".join(self._names)
            if self._place is not None and not self._place.startswith(prefix_of(made)):
                raise changed(self._path) from None
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._fds[-1])
            fd = os.open(name, _DIR_FLAGS, dir_fd=self._fds[-1])
        self._fds.append(fd)

    def _up(self) -> None:
        if not self._names:
            raise self._refusal("a link that leads out of the files")
        self._names.pop()
        os.close(self._fds.pop())

    def _follow(self, target: str) -> None:
        self._links -= 1
        if self._links < 0:
            raise self._refusal("links that are not followed here")
        if target.startswith("/"):
            if target != self._root and not target.startswith(self._root + "/"):
                raise self._refusal("a link that leads out of the files")
            target = target[len(self._root) :]
            while self._names:
                self._up()
        self._todo.extend(self._parts(target))

    def _parts(self, path: str) -> list[str]:
        return [name for name in reversed(path.split("/")) if name not in ("", ".")]

    def _refusal(self, why: str) -> FileError:
        return FileError(
            "permission_denied",
            self._path,
            f"{self._path} is, or passes through, {why}. Nothing was done.",
        )


def _refuse(error: OSError) -> None:
    raise error


def _require_version(place: _Place, kept: FileMetadata) -> None:
    """Raise `changed` if another program wrote the file while ours was created."""
    status = os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
    if version(status) != kept.version:
        raise changed(place.path)


def _put_new(temporary: str, place: _Place) -> bool:
    """Give a file its name if the name is free; return False if the disk does not support this.

    Raises:
        FileError: `changed`: another program made a file of that name.
    """
    try:
        os.link(
            temporary,
            place.name,
            src_dir_fd=place.fd,
            dst_dir_fd=place.fd,
            follow_symlinks=False,
        )
    except FileExistsError as error:
        raise changed(place.path) from error
    except (OSError, NotImplementedError):
        return False
    os.unlink(temporary, dir_fd=place.fd)
    return True


def _link(name: str, fd: int) -> str | None:
    """Return the target of a link, or None for anything that is not a link."""
    try:
        return os.readlink(name, dir_fd=fd)
    except OSError:
        return None


def _walk(fd: int, prefix: str, depth: int, wanted: PathTest) -> Iterator[Leaf]:
    with os.scandir(fd) as scan:
        entries = sorted(scan, key=_NAME)
    for entry in entries:
        name = entry.name
        path = f"{prefix}/{name}"
        if entry.is_dir(follow_symlinks=False):
            if depth < MAX_DEPTH and is_unicode(name):
                yield from _below(fd, name, path, depth + 1, wanted)
        elif is_unicode(name) and wanted(path) and entry.is_file(follow_symlinks=False):
            yield Leaf(path, name, fd)


def _below(fd: int, name: str, path: str, depth: int, wanted: PathTest) -> Iterator[Leaf]:
    try:
        child = os.open(name, _DIR_FLAGS, dir_fd=fd)
    except OSError:
        return  # gone, unreadable, or replaced by a link since
    try:
        yield from _walk(child, path, depth, wanted)
    finally:
        os.close(child)


def _remove_empty(parent: int, name: str) -> None:
    fd = os.open(name, _DIR_FLAGS, dir_fd=parent)
    try:
        with os.scandir(fd) as scan:
            names = [entry.name for entry in scan if entry.is_dir(follow_symlinks=False)]
        for child in names:
            _remove_empty(fd, child)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)
