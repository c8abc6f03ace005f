"""Live view of a run at a terminal: finished steps above, current work in the last lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text
from typing_extensions import override

from . import clean, one_line
from .steps import SEPARATOR, Step
from .views import BOXES, MARKS, Todos, View, summary, write_answer

if TYPE_CHECKING:
    from .states import RunState

__all__ = ["LiveView"]

STYLES = {
    "text": "",
    "call": "cyan",
    "done": "green",
    "failed": "red",
    "waits": "yellow",
    "note": "dim",
}
MOST_TODOS = 8
FRAMES_PER_SECOND = 8


class LiveView(View):
    """Shows steps as they are stored, the todo list, and an animated line.

    Args:
        out: Where the answer goes.
        err: Where everything else goes, a terminal.
        quiet: Leave out steps and todos.
    """

    def __init__(self, out: TextIO, err: TextIO, *, quiet: bool = False) -> None:
        super().__init__(out, err)
        self.wants_steps = not quiet
        self.console = Console(file=err, highlight=False)
        self._live: Live | None = None
        self._todos: Todos = ()
        self._line = ""
        self._used = ""
        self._spinner = Spinner("dots", style="cyan")

    @override
    def hello(self, text: str) -> None:
        """Print the first line."""
        if self.wants_steps:
            self._print(Text(clean(text), "dim"))

    @override
    def begun(self, state: RunState) -> None:
        """A run begins or continues."""
        self._since = time.monotonic()
        self._todos, self._line, self._used = (), "begins", ""
        self._open()

    @override
    def step(self, step: Step) -> None:
        """Print a step above the animated lines."""
        indent = 2 * step.depth
        who = f"{step.agent.rpartition(SEPARATOR)[2]}: " if step.depth else ""
        if step.kind == "text":
            from rich.markdown import Markdown  # not needed for the first line

            if who:
                self._print(Padding(Text(who.rstrip(), "dim"), (0, 0, 0, indent)))
            self._print(Padding(Markdown(clean(step.text)), (0, 0, 0, indent)))
            return
        line = Text(" " * indent)
        line.append(MARKS[step.kind], STYLES[step.kind])
        line.append(f"{who}{clean(step.text)}", "dim" if step.kind == "note" else "")
        self._print(line)

    @override
    def todos(self, todos: Todos) -> None:
        """Keep the list at the end of the screen."""
        self._todos = todos

    @override
    def doing(self, line: str, used: str) -> None:
        """Change the animated line."""
        self._line = one_line(line, 200) or self._line
        self._used = used or self._used

    @override
    def lost(self, text: str) -> None:
        """Show in the animated line that the server is unreachable."""
        self._line = one_line(text, 200) or "the server is back"

    @override
    def note(self, text: str) -> None:
        """Print a line of our own."""
        self._print(Text(clean(text), "yellow"))

    @override
    def settled(self, state: RunState, advice: str) -> None:
        """Print the result of the run, then the answer."""
        self._close()
        seconds = time.monotonic() - self._since
        if self._todos and state.status == "done":
            self.console.print(self._shown_todos())
        if state.status == "done":
            write_answer(self.out, state)
        if state.reason:
            self._print(Text(clean(state.reason), "red" if state.status == "failed" else "yellow"))
        for one in state.notes:
            self._print(Text(clean(one), "dim"))
        style = {"done": "green", "failed": "red"}.get(state.status, "yellow")
        self._print(Text(summary(state, seconds), style))
        if advice:
            self._print(Text(clean(advice), "dim"))

    @override
    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the animation while another program writes to the terminal."""
        was_open = self._live is not None
        self._close()
        try:
            yield
        finally:
            if was_open:
                self._open()

    @override
    def log_handler(self) -> logging.Handler:
        """Return a handler that prints log records above the animated lines."""
        return _LogHandler(self)

    @override
    def close(self) -> None:
        """Restore the terminal."""
        self._close()

    # --- drawing ---------------------------------------------------------------------------

    def _open(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self.console,
                transient=True,
                refresh_per_second=FRAMES_PER_SECOND,
                redirect_stdout=False,
                get_renderable=self._frame,
            )
            self._live.start()

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, what: Text | Padding) -> None:
        self.console.print(what, soft_wrap=isinstance(what, Text))

    def _frame(self) -> Group:
        passed = time.monotonic() - self._since
        used = f", {self._used}" if self._used else ""
        line = Text(f"{self._line}  ", overflow="ellipsis", no_wrap=True)
        line.append(f"{passed:.0f} s{used}", "dim")
        self._spinner.update(text=line)
        parts = [self._shown_todos()] if self._todos else []
        return Group(*parts, self._spinner)

    def _shown_todos(self) -> Text:
        todos = self._todos
        first = next((at for at, one in enumerate(todos) if one.get("status") != "completed"), 0)
        first = max(0, min(first - 2, len(todos) - MOST_TODOS))
        styles = {"completed": "dim", "in_progress": "bold cyan"}
        lines: list[Text] = []
        for one in todos[first : first + MOST_TODOS]:
            status = str(one.get("status"))
            text = one_line(str(one.get("content")), max(20, self.console.width - 6))
            lines.append(Text(f" {BOXES.get(status, '○')} {text}", styles.get(status, "")))
        left = len(todos) - first - MOST_TODOS
        if left > 0:
            lines.append(Text(f"   and {left} more", "dim"))
        return Text("\n").join(lines)


class _LogHandler(logging.Handler):
    """Prints log records above the animated lines.

    Args:
        view: The view to print in.
    """

    def __init__(self, view: LiveView) -> None:
        super().__init__()
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        self._view.note(f"{record.levelname.lower()}: {record.getMessage()}")
