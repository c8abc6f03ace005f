"""Instruction counts of a program for one piece of work, measured with valgrind.

Times on a shared machine vary by a factor of two; instruction counts vary by one percent. The count
includes all threads of the process, but not the kernel, so waiting for the disk does not count. A
program is run twice, with less and with more work; the difference excludes its start.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["per_piece", "valgrind"]

LESS, MORE = 30, 130
"""Pieces of work of the two runs. The first pieces warm up the specialising interpreter."""
COUNT = re.compile(r"I\s+refs:\s+([\d,]+)")


def valgrind() -> bool:
    """Return whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def per_piece(run: Callable[[Sequence[str], int], None]) -> float:
    """Return the instructions of one piece of work.

    Args:
        run: Runs a program, with words before its command, for a number of pieces of work.
    """
    counts = [_counted(run, pieces) for pieces in (LESS, MORE)]
    return (counts[1] - counts[0]) / (MORE - LESS)


def _counted(run: Callable[[Sequence[str], int], None], pieces: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        words = (
            "env",
            "PYTHONHASHSEED=0",
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            "--fair-sched=yes",
        )
        outputs = (f"--cachegrind-out-file={os.devnull}", f"--log-file={log}")
        run((*words, *outputs), pieces)
        found = COUNT.search(log.read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise RuntimeError("valgrind counted nothing: the program was ended by a signal, or failed")
    return int(found[1].replace(",", ""))
