"""Views: show runs and threads at a terminal, as plain lines, as tables, or as JSON.

The answer goes to standard output and everything else to standard error, so that
`answer=$(deep-agent-mcp run …)` contains the answer alone. With JSON, everything goes to standard
output, one object a line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from typing_extensions import override

from ...harness._internal import count_of
from . import ago, clean, dollars, one_line, seconds_of
from .steps import Event, Step

if TYPE_CHECKING:
    from .states import RunState

__all__ = [
    "RUN_COLUMNS",
    "THREAD_COLUMNS",
    "CleanLogs",
    "JsonView",
    "LinesView",
    "View",
    "print_table",
    "run_cells",
    "step_line",
    "summary",
    "thread_cells",
]

Todos = Sequence[Mapping[str, Any]]

MARKS = {"text": "", "call": "▸ ", "done": "✓ ", "failed": "✗ ", "waits": "? ", "note": "· "}
BOXES = {"completed": "✓", "in_progress": "▸", "pending": "○"}


def summary(state: RunState, seconds: float) -> str:
    """Return the outcome of a run, in one line."""
    words = {"done": "Done", "failed": "Failed", "cancelled": "Cancelled", "paused": "Paused"}
    words["needs_approval"] = "Waiting"
    parts = [f"{words.get(state.status, state.status)} after {_time(seconds)}"]
    used = state.usage
    if used.get("model_calls"):
        parts.append(count_of(int(used["model_calls"]), "model call"))
    tokens = sum(dict(used.get("usage") or {}).values())
    if tokens:
        parts.append(f"{tokens:,} tokens")
    if used.get("cost"):
        parts.append(dollars(float(used["cost"])))
    parts.append(f"thread {state.thread_id}")
    return ", ".join(parts)


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


class CleanLogs(logging.StreamHandler[TextIO]):
    """Writes log records, which may contain texts of servers, as clean text."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        return clean(super().format(record))


class View:
    """Shows a run. This base class shows only the answer and necessary notes.

    All its texts may contain output of models and tools.

    Args:
        out: Where the answer goes.
        err: Where everything else goes.

    Attributes:
        wants_steps: Whether it shows steps and todos, not only events.
    """

    wants_steps = False

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self.out, self.err = out, err
        self._since = time.monotonic()
        self._away = False

    def hello(self, text: str) -> None:
        """Show the first line: which agent works, and where."""

    def begun(self, state: RunState) -> None:
        """A run has begun or continues."""

    def event(self, event: Event) -> None:
        """Something happened, as it is stored."""

    def step(self, step: Step) -> None:
        """Show a step as text."""

    def todos(self, todos: Todos) -> None:
        """The main agent's list has changed."""

    def doing(self, line: str, used: str) -> None:
        """Show what the run is doing now, and its usage."""

    def note(self, text: str) -> None:
        """Show a note about the terminal itself."""
        print(clean(text), file=self.err, flush=True)

    def settled(self, state: RunState, advice: str) -> None:
        """The run has paused or ended; `advice` says what to do next."""
        if state.status == "done":
            write_answer(self.out, state)
            return
        if state.reason:
            self.note(f"{state.status}: {state.reason}")
        if advice:
            self.note(advice)

    def lost(self, text: str) -> None:
        """The server is unreachable, as `text` says; empty once it is back."""
        if bool(text) != self._away:
            self._away = bool(text)
            self.note(text or "the server is back")

    @contextmanager
    def paused(self) -> Generator[None]:
        """Leave the terminal to another program meanwhile."""
        yield

    def log_handler(self) -> logging.Handler:
        """Return a handler for log records."""
        return CleanLogs(self.err)

    def close(self) -> None:
        """Restore the terminal."""


class LinesView(View):
    """Plain lines, for files, pipes and logs of CI."""

    wants_steps = True

    def __init__(self, out: TextIO, err: TextIO) -> None:
        super().__init__(out, err)
        self._todos = ""

    @override
    def hello(self, text: str) -> None:
        self.note(text)

    @override
    def begun(self, state: RunState) -> None:
        self._since = time.monotonic()
        self.note(f"run {state.run_id} on thread {state.thread_id}")

    @override
    def step(self, step: Step) -> None:
        self.note(step_line(step))

    @override
    def todos(self, todos: Todos) -> None:
        done = sum(one.get("status") == "completed" for one in todos)
        now = [str(one.get("content")) for one in todos if one.get("status") == "in_progress"]
        line = f"todos: {done} of {len(todos)} done"
        line += f"; now: {one_line('; '.join(now), 200)}" if now else ""
        if todos and line != self._todos:
            self._todos = line
            self.note(line)

    @override
    def settled(self, state: RunState, advice: str) -> None:
        if state.reason:
            self.note(f"reason: {state.reason}")
        for one in state.notes:
            self.note(f"note: {one}")
        self.note(summary(state, time.monotonic() - self._since))
        if advice:
            self.note(advice)
        if state.status == "done":
            write_answer(self.out, state)


class JsonView(View):
    """One JSON object a line: `run`, `event`, `todos`, `note`, `result`."""

    def _say(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"type": kind, **facts}, ensure_ascii=False)
        self.out.write(line + "\n")
        self.out.flush()

    @override
    def begun(self, state: RunState) -> None:
        self._say("run", run_id=state.run_id, thread_id=state.thread_id, status=state.status)

    @override
    def event(self, event: Event) -> None:
        self._say("event", **event)

    @override
    def note(self, text: str) -> None:
        self._say("note", text=text)

    @override
    def settled(self, state: RunState, advice: str) -> None:
        facts: dict[str, Any] = {
            "run_id": state.run_id,
            "thread_id": state.thread_id,
            "status": state.status,
            "answer": state.answer,
            "answer_data": state.data,
            "reason": state.reason,
            "pending": [
                {
                    "id": one.id,
                    "question": one.text,
                    "asked_by": one.asked_by,
                    "tool": one.tool,
                    "args": one.args,
                    "decisions": list(one.decisions),
                }
                for one in state.questions
            ],
            "usage": dict(state.usage),
            "notes": list(state.notes),
            "next": advice,
        }
        self._say("result", **{name: value for name, value in facts.items() if value})


def step_line(step: Step) -> str:
    """Return a step as one plain line."""
    return f"{step.agent}: {MARKS[step.kind]}{one_line(step.text, 300)}"


def write_answer(out: TextIO, state: RunState) -> None:
    """Write an answer: rendered at a terminal, unchanged elsewhere."""
    text = state.answer
    if state.data is not None:
        text = json.dumps(state.data, ensure_ascii=False, indent=2)
    if not text:
        return
    if not out.isatty():
        out.write(text.rstrip("\n") + "\n")
        out.flush()
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=out, highlight=False)
    if state.data is not None:
        console.print_json(clean(text), highlight=not console.no_color)
    else:
        console.print(Markdown(clean(text)))


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
"""Columns of an output that is not a terminal, so that nothing is cut."""


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
