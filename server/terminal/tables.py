"""Tables of runs and threads, for people and for `grep`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from .texts import ago, dollars, one_line, seconds_of

__all__ = ["RUN_COLUMNS", "THREAD_COLUMNS", "print_table", "run_cells", "thread_cells"]

RUN_COLUMNS = ("RUN", "STATUS", "CHANGED", "COST", "THREAD", "GOAL, REASON")
THREAD_COLUMNS = ("THREAD", "STATUS", "CHANGED", "COST", "STEPS", "AGENT", "GOAL, REASON")

STYLES = {
    "running": "cyan",
    "queued": "cyan",
    "needs_approval": "bold yellow",
    "paused": "yellow",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
}
_WIDE = 1_000
"""Columns of an output that is no terminal: nothing is cut there."""


def run_cells(run: Mapping[str, Any]) -> list[str]:
    """Return the row of a run, as `runs list --json` shows it."""
    status = str(run.get("status"))
    if run.get("at_work") is False:
        status += " (left)"
    return [
        str(run.get("run_id")),
        status,
        _when(run.get("updated")),
        _cost(run),
        str(run.get("thread_id")),
        _about(run),
    ]


def thread_cells(thread: Mapping[str, Any]) -> list[str]:
    """Return the row of a thread, as `threads list --json` shows it."""
    run = cast("Mapping[str, Any]", thread.get("last_run") or {})
    return [
        str(thread.get("thread_id")),
        str(run.get("status") or ""),
        _when(thread.get("updated")),
        _cost(thread),
        str(thread.get("checkpoints")),
        str(run.get("agent") or ""),
        _about(run),
    ]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; at a terminal it fits the window, and elsewhere nothing is cut."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if is_terminal else _WIDE)
    lines = [columns, *rows]
    widths = [max(cell_len(line[at]) for line in lines) for at in range(len(columns))]
    room = max(8, console.width - sum(widths[:-1]) - 2 * (len(columns) - 1))
    for number, line in enumerate(lines):
        shown = Text(style="" if number else "bold")
        for at, (name, cell) in enumerate(zip(columns, line, strict=True)):
            if at == len(columns) - 1:
                shown.append(
                    cell if cell_len(cell) <= room else set_cell_size(cell, room - 1) + "…"
                )
                continue
            right = name in ("COST", "STEPS")
            blank = " " * (widths[at] - cell_len(cell))
            style = STYLES.get(cell.partition(" ")[0], "") if number else ""
            shown.append(f"{blank}{cell}  " if right else f"{cell}{blank}  ", style)
        shown.rstrip()
        console.print(shown, soft_wrap=True)


def _about(run: Mapping[str, Any]) -> str:
    parts = [str(run[name]) for name in ("goal", "reason") if run.get(name)]
    return one_line("; ".join(parts), 200)


def _when(moment: object) -> str:
    return ago(seconds_of(str(moment))) if moment else ""


def _cost(facts: Mapping[str, Any]) -> str:
    cost = facts.get("cost")
    return dollars(float(cost)) if cost else ""
