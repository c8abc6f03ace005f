"""Ripgrep: finds the files an expression may match in (extra `search`, or `rg` on the PATH).

It only ever gives names: what is in those files is read and searched by `search.search` through
the confined tree. So results are the same with and without it, and nothing that it could be led to
by a link is shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import anyio
from anyio.abc import Process

from ..._internal.records import record
from ..paths import MAX_DEPTH, nameable

__all__ = ["Candidates", "candidates", "find_ripgrep"]

_MOST_MEMORY = 16 << 20
"""Bytes of its compiled expression, and of what it remembers of its search; it says no to more."""


@record
class Candidates:
    """Files that may match.

    Attributes:
        names: Their paths from the directory, in the order in which a tree is walked.
        complete: Whether these are all; if not, there was no time for more.
    """

    names: Sequence[str]
    complete: bool = True


@cache
def find_ripgrep() -> str | None:
    """Return where ripgrep is: with this Python's own programs, else on the PATH, else None."""
    import sysconfig  # not needed to begin serving

    own = Path(sysconfig.get_path("scripts"), "rg.exe" if os.name == "nt" else "rg")
    return str(own) if own.is_file() else shutil.which("rg")


async def candidates(
    program: str, expression: str, directory: str, *, most_bytes: int, seconds: float
) -> Candidates | None:
    """Return the files below a real directory in which ripgrep finds an expression.

    Hidden files, ignored files and binary files are looked into, links are not followed.

    Args:
        program: ripgrep.
        expression: In its own dialect.
        directory: Where to look.
        most_bytes: Larger files are left out.
        seconds: Time after which it is stopped.

    Returns:
        The files, or None when ripgrep could not do it: then search without it.
    """
    command = [
        *(program, "--no-config", "--no-messages", "--no-ignore", "--hidden", "--text"),
        *("--files-with-matches", "--null", "--path-separator=/", "--color=never"),
        *(f"--max-filesize={most_bytes}", f"--max-depth={MAX_DEPTH + 1}"),
        *(f"--regex-size-limit={_MOST_MEMORY}", f"--dfa-size-limit={_MOST_MEMORY}"),
        *("-e", expression, "./"),
    ]
    output = bytearray()
    code = None
    with anyio.move_on_after(seconds):
        try:
            process = await _started(command, directory)
        except OSError:
            return None
        async with process:
            assert process.stdout is not None
            async for chunk in process.stdout:
                output += chunk
            code = await process.wait()
    if code not in (0, 1, None):
        return None
    paths = bytes(output).split(b"\0")[:-1]
    names = [os.fsdecode(path).removeprefix("./") for path in paths]
    kept = sorted(filter(nameable, names), key=lambda name: name.split("/"))
    return Candidates(kept, complete=code is not None)


async def _started(command: Sequence[str], directory: str) -> Process:
    """Return a running process; not interrupted, for nobody would end what is half started."""
    started: list[Process] = []
    with anyio.CancelScope(shield=True):
        started.append(
            await anyio.open_process(
                command, cwd=directory, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    return started[0]
