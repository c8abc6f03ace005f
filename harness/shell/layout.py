"""Layout: the part of this machine that a command sees, and its paths.

File tools and commands share one namespace: what a backend has at `/workspace/a.py` a command
finds at `/workspace/a.py`. A layout says so for a sandbox: directories of this machine at their
places, with less access where the rules of the file tools say so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

from .._internal.records import record

__all__ = ["Access", "Layout", "Mount"]

Access: TypeAlias = Literal["read", "write", "hidden"]
"""What a command can do with a path."""


@record
class Mount:
    """A path of this machine in the sandbox.

    Attributes:
        path: The path on this machine; it must exist when a shell starts.
        access: `hidden` puts an empty directory, or a file that cannot be read, in its place.
        target: Where it is in the sandbox; None for the same path.
        identity: Device and number of the file that was judged, as `stat -c %d:%i` shows them, so
            that another one in its place is noticed; empty if nobody looks.
    """

    path: str
    access: Access = "read"
    target: str | None = None
    identity: str = ""

    @property
    def place(self) -> str:
        """Where it is in the sandbox."""
        return self.target or self.path

    @property
    def is_directory(self) -> bool:
        """Whether it is one now; blocking."""
        return os.path.isdir(self.path)


@record
class Layout:
    """What commands see of this machine.

    Attributes:
        workdir: Where they start, as they see it.
        mounts: Paths of this machine; later ones lie on top.
        network: Whether they reach the network, if the execution policy enables it.
        notes: What was left out of reach for lack of time or room; for the model.
    """

    workdir: str
    mounts: Sequence[Mount] = ()
    network: bool = True
    notes: Sequence[str] = ()
