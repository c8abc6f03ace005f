"""Reads keys from a file that only its owner can read."""

from __future__ import annotations

import codecs
import os
import shlex
import stat
from pathlib import Path

__all__ = ["read_key_file"]

_MOST_BYTES = 64 * 1024


def read_key_file(path: Path) -> str:
    """Return the text of a key file.

    Raises:
        ValueError: It cannot be read, or others can read or change it; the text says what to do.
    """
    try:
        # A pipe would be waited for, and a device has no end.
        if not path.is_file():
            raise ValueError("not an existing file")
        with path.open("rb") as file:
            _require_private(path, os.fstat(file.fileno()).st_mode)
            data = file.read(_MOST_BYTES)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error
    # What `>` of Windows PowerShell writes.
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if utf16 else "utf-8-sig", "replace")


def _require_private(path: Path, mode: int) -> None:
    others = stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if os.name == "posix" and others:
        raise ValueError(
            f"others than its owner have access to it (mode {stat.S_IMODE(mode):04o}); run: "
            f"chmod 600 {shlex.quote(str(path))}"
        )
