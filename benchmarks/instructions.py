"""Instructions that a program runs for one piece of work, counted by valgrind.

Times on a shared machine move by a factor of two; instructions move by a percent. Counted is what
the process runs itself, all threads, without the kernel: waiting for the disk is not in it. A
program is run twice, with less and with more of the work; the difference leaves its start out.
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
"""Pieces of work of the two runs. The first of them warm up the specialising interpreter."""
COUNT = re.compile(r"I\s+refs:\s+([\d,]+)")


def valgrind() -> bool:
    """Return whether instructions can be counted here."""
    return shutil.which("valgrind") is not None


def per_piece(run: Callable[[Sequence[str], int], None]) -> float:
    """Return the instructions of one piece of work.

    Args:
        run: Runs a program with the words before its command, for so many pieces of work.
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
