"""A directory on disk, confined: the seam between the directory backend and the platform.

A `Tree` does blocking file operations, only below one root; it is called in worker threads. Paths
are canonical (`harness.backends.base.canonical_path`). `DirectoryBackend` picks the implementation:
descriptors that do not follow links if the platform has them, otherwise checked real paths.

Mode, owner and extended attributes survive the replacement of a file. On Linux, this includes the
access control list. If the system does not allow that, the new file has less access rather than
more.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from ..._internal import is_unicode
from ..._internal.records import record
from ...errors import ToolError
from ..base import (
    MAX_DEPTH,
    FileEntry,
    FileError,
    PathTest,
    changed,
    every_path,
    is_directory,
    size_text,
)

__all__ = [
    "FileMetadata",
    "Leaf",
    "Present",
    "Tree",
    "file_errors",
    "opened_regular",
    "pinned_place",
    "read_open",
    "read_regular",
    "require_deletable",
    "require_same",
    "require_shallow",
    "require_writable",
    "version",
]


_CHUNK = 1 << 20

READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
WRITE_FLAGS = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@record
class Present:
    """State of a path that is about to change.

    Attributes:
        path: The canonical path with links resolved.
        data: The file's content, or None if there is no file.
    """

    path: str
    data: bytes | None


class Leaf(NamedTuple):
    """A regular file met on a walk; usable until the walk moves on.

    Attributes:
        path: Its canonical path.
        name: Its name in the directory `dir_fd`, or its real path without one.
        dir_fd: The directory, open.
    """

    path: str
    name: str
    dir_fd: int | None = None

    def status(self) -> os.stat_result:
        """Return size and times.

        Raises:
            OSError: It is gone.
        """
        return os.stat(self.name, dir_fd=self.dir_fd, follow_symlinks=False)

    def read(self, limit: int) -> bytes | None:
        """Return its bytes, or None if it is gone, unreadable or larger than `limit`."""
        try:
            return read_regular(self.name, self.path, limit, dir_fd=self.dir_fd)
        except (OSError, FileError):
            return None


def pinned_place(pins: Mapping[str, str], path: str) -> str | None:
    """Return the only place that a path may lead to; None if it may lead anywhere.

    Args:
        pins: The places of some paths. What is below such a path must be below its place.
        path: The path.
    """
    above = path
    while pins:
        if above in pins:
            return (pins[above].rstrip("/") + path[len(above.rstrip("/")) :]) or "/"
        if above == "/":
            break
        above = above.rpartition("/")[0] or "/"
    return None


class Tree(Protocol):
    """Blocking file operations below a root. All raise `FileError` for normal failures."""

    def pinned(self, path: str, place: str) -> Tree:
        """Return the same files, where a path must lead to a place, or `changed` is raised.

        Whoever has judged a place uses this, as links on the way to it could be replaced.
        """
        ...

    def read(self, path: str, limit: int) -> bytes:
        """Return a regular file's bytes; `too_large` above `limit`."""
        ...

    def children(self, path: str) -> list[FileEntry]:
        """Return the entries of a directory, unsorted."""
        ...

    def walk(self, path: str, wanted: PathTest = every_path) -> Iterator[Leaf]:
        """Yield the wanted files below a directory in a stable order, without following links."""
        ...

    def pick(self, paths: Iterable[str]) -> Iterator[Leaf]:
        """Yield the files at paths, like `walk`; files in missing directories are left out.

        It is fastest if consecutive paths are in the same directory.
        """
        ...

    def is_dir(self, path: str) -> bool:
        """Whether the path is a directory, not a file; raises `not_found` if nothing is there."""
        ...

    def present(self, path: str, limit: int, *, create: bool = False) -> Present:
        """Return the file that a write to the path would replace.

        With `create` missing parent directories are made, else a missing parent is `not_found`.
        """
        ...

    def replace(self, present: Present, data: bytes) -> None:
        """Replace the file atomically; raises `changed` if it differs from `present`."""
        ...

    def remove(self, present: Present) -> None:
        """Delete the file; raises `changed` if it differs from `present`."""
        ...

    def remove_empty(self, path: str) -> None:
        """Delete a directory that contains only directories."""
        ...

    def contents(self, path: str, limit: int) -> Sequence[Present]:
        """Return all files below a directory, for deletion; `limit` is for their bytes together.

        Raises:
            FileError: Something below is neither a regular file nor a directory (`not_a_file`).
        """
        ...


def require_same(present: Present, data: bytes | None) -> None:
    """Raise `changed` when the content that is there now is not the one seen before."""
    if data != present.data:
        raise changed(present.path)


def require_deletable(path: str, status: os.stat_result) -> bool:
    """Whether it is a file rather than a directory.

    Raises:
        FileError: Deleting it could not be undone: a link, a device, a name that is not Unicode.
    """
    regular = stat.S_ISREG(status.st_mode)
    if not (regular or stat.S_ISDIR(status.st_mode)) or not is_unicode(path):
        raise FileError(
            "not_a_file",
            path,
            f"{path!r} is neither a plain file nor a directory, so its deletion could not be "
            "undone. Nothing was done.",
        )
    return regular


def require_shallow(path: str, depth: int) -> None:
    """Raise `too_large` for a directory with others deeper than `MAX_DEPTH` below it."""
    if depth > MAX_DEPTH:
        raise FileError(
            "too_large",
            path,
            f"{path[:100]}: directories are nested more than {MAX_DEPTH} deep. Nothing was done.",
        )


def require_writable(name: str, path: str, *, dir_fd: int | None = None) -> None:
    """Raise `permission_denied` for a file that its mode protects against writing.

    Replacing a file asks only for rights in its directory, so the system would not object.
    """
    if not os.access(name, os.W_OK, dir_fd=dir_fd):
        raise FileError("permission_denied", path, f"{path} is read-only. Nothing was done.")


_BY_ERRNO = {
    errno.ENOENT: ("not_found", "there is no such file or directory"),
    errno.EACCES: ("permission_denied", "the operating system does not permit it"),
    errno.EPERM: ("permission_denied", "the operating system does not permit it"),
    errno.EROFS: ("permission_denied", "the disk is read-only"),
    errno.ELOOP: ("permission_denied", "the path leads through a link that is not followed"),
    errno.EISDIR: ("is_directory", "it is a directory"),
    errno.ENOTDIR: ("not_a_directory", "a part of the path is a file, not a directory"),
    errno.EEXIST: ("not_a_directory", "a part of the path is a file, not a directory"),
    errno.ENAMETOOLONG: ("invalid_path", "the name is too long for the disk"),
    errno.EINVAL: ("invalid_path", "the disk does not accept the name"),
    errno.ENOTEMPTY: ("changed", "something was added to the directory in the meantime"),
    errno.ENXIO: ("not_a_file", "it is a device or socket, not a file"),
}


@contextmanager
def file_errors(path: str) -> Generator[None]:
    """Turn `OSError` into `FileError`, or into `ToolError` when the machine is at fault."""
    try:
        yield
    except OSError as error:
        known = _BY_ERRNO.get(error.errno or 0)
        if known is None:
            raise ToolError(f"{path}: the disk reported: {error.strerror}.") from error
        code, why = known
        raise FileError(code, path, f"{path}: {why}. Nothing was done.") from error  # type: ignore[arg-type]


def read_regular(name: str, path: str, limit: int, *, dir_fd: int | None = None) -> bytes:
    """Return the bytes of a regular file; opens nothing else and never blocks on a pipe.

    Raises:
        FileError: It is a directory or device, or larger than `limit`.
        OSError: The system refused.
    """
    with opened_regular(name, path, dir_fd=dir_fd) as fd:
        return read_open(fd, path, limit)


@contextmanager
def opened_regular(name: str, path: str, *, dir_fd: int | None = None) -> Generator[int]:
    """Open a regular file for reading, and nothing else; raises what `read_regular` does."""
    _require_regular(os.stat(name, dir_fd=dir_fd, follow_symlinks=False), path)
    fd = os.open(name, READ_FLAGS, dir_fd=dir_fd)
    try:
        _require_regular(os.fstat(fd), path)
        yield fd
    finally:
        os.close(fd)


def read_open(fd: int, path: str, limit: int) -> bytes:
    """Return the bytes of an open file; `too_large` above `limit`, even if it grows meanwhile."""
    size = max(os.fstat(fd).st_size, 0)
    _require_size(size, limit, path)
    most = min(size, _CHUNK) + 1
    first = os.read(fd, most)
    if len(first) < most:
        return first  # nearly every file is read in one call
    pieces, total = [first], len(first)
    while total <= limit and (piece := os.read(fd, _CHUNK)):
        pieces.append(piece)
        total += len(piece)
    _require_size(total, limit, path)
    return b"".join(pieces)


def _require_regular(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise is_directory(path)
    if stat.S_ISLNK(status.st_mode):
        raise FileError("permission_denied", path, f"{path} became a link; it is not followed.")
    if not stat.S_ISREG(status.st_mode):
        raise FileError("not_a_file", path, f"{path} is a device, pipe or socket, not a file.")


def _require_size(size: int, limit: int, path: str) -> None:
    if size > limit:
        raise FileError(
            "too_large",
            path,
            f"{path} has {size_text(size)}; the limit is {size_text(limit)}. Nothing was done.",
        )


_ACCESS_LIST = "system.posix_acl_access"


@record
class FileMetadata:
    """Mode, owner and extended attributes of a file.

    Attributes:
        mode: Permission bits.
        uid: The user that owns it; 0 on systems without users.
        gid: The group that owns it.
        extended: The attributes of users, and the access control list, by name. Attributes that
            give rights to a program are left out, because its content has changed.
        version: Changes whenever the file is written or replaced.
    """

    mode: int
    uid: int
    gid: int
    extended: Mapping[str, bytes]
    version: tuple[int, ...] = ()

    @classmethod
    def of(cls, fd: int) -> FileMetadata:
        """Return the attributes of an open file."""
        status = os.fstat(fd)
        mode = stat.S_IMODE(status.st_mode)
        return cls(mode, status.st_uid, status.st_gid, _extended(fd), version(status))

    def give(self, fd: int) -> None:
        """Set them on a newly created open file, before anything is written to it."""
        if sys.platform == "win32":
            return
        mode = self._own(fd)
        if sys.platform == "linux":
            for name, value in self.extended.items():
                # The content will be ours; a disk without these attributes has none to lose.
                with suppress(OSError):
                    os.setxattr(fd, name, value)
        os.fchmod(fd, mode)

    def _own(self, fd: int) -> int:
        """Set the file's owner, and return the mode that suits its owner now."""
        assert sys.platform != "win32"
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (self.uid, self.gid):
            try:
                os.fchown(fd, self.uid, self.gid)
            except OSError:
                with suppress(OSError):
                    os.fchown(fd, -1, self.gid)
            status = os.fstat(fd)
        mode = self.mode
        if status.st_uid != self.uid:
            mode &= ~stat.S_ISUID
        if status.st_gid != self.gid:
            # A different group gets the rights of everybody.
            mode = mode & ~(stat.S_ISGID | stat.S_IRWXG) | (mode & stat.S_IRWXO) << 3
        return mode


def version(status: os.stat_result) -> tuple[int, ...]:
    """Return the `Attributes.version` of a file with this status."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _extended(fd: int) -> dict[str, bytes]:
    if sys.platform != "linux":
        return {}
    found: dict[str, bytes] = {}
    with suppress(OSError):  # the disk has no attributes, or it was removed since
        for name in os.listxattr(fd):
            if name == _ACCESS_LIST or name.startswith("user."):
                found[name] = os.getxattr(fd, name)
    return found
