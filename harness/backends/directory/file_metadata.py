"""File metadata that survives a replacement: mode, owner, extended attributes.

On Linux the access control list is one of the extended attributes, so it is kept as well. What the
system does not let us keep is given up in the direction of less access.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from ..._internal.records import record

__all__ = ["FileMetadata", "version"]

_ACCESS_LIST = "system.posix_acl_access"


@record
class FileMetadata:
    """Mode, owner and extended attributes of a file.

    Attributes:
        mode: Permission bits.
        uid: The user it belongs to; 0 where there are none.
        gid: The group it belongs to.
        extended: The attributes of users, and the access control list, by name. Those that give a
            program rights are left out: its content is not what was trusted any more.
        version: Changes when somebody writes into the file, or puts another in its place.
    """

    mode: int
    uid: int
    gid: int
    extended: Mapping[str, bytes]
    version: tuple[int, ...] = ()

    @classmethod
    def of(cls, fd: int) -> FileMetadata:
        """Return those of an open file."""
        status = os.fstat(fd)
        mode = stat.S_IMODE(status.st_mode)
        return cls(mode, status.st_uid, status.st_gid, _extended(fd), version(status))

    def give(self, fd: int) -> None:
        """Give them to an open file of our own, before anything is written into it."""
        mode = self.mode
        if hasattr(os, "fchown"):
            mode = self._own(fd)
        for name, value in self.extended.items():
            # The next bytes are ours; a disk without such attributes has none to lose.
            with suppress(OSError):
                os.setxattr(fd, name, value)
        if hasattr(os, "fchmod"):
            os.fchmod(fd, mode)

    def _own(self, fd: int) -> int:
        """Hand the file over, and return the mode that suits whom it belongs to now."""
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
            # Another group gets what everybody has.
            mode = mode & ~(stat.S_ISGID | stat.S_IRWXG) | (mode & stat.S_IRWXO) << 3
        return mode


def version(status: os.stat_result) -> tuple[int, ...]:
    """Return what `Attributes.version` is for a file with this status."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _extended(fd: int) -> dict[str, bytes]:
    if not hasattr(os, "listxattr"):
        return {}
    found: dict[str, bytes] = {}
    with suppress(OSError):  # a disk without them, or one removed meanwhile
        for name in os.listxattr(fd):
            if name == _ACCESS_LIST or name.startswith("user."):
                found[name] = os.getxattr(fd, name)
    return found
