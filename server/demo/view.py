"""Demo view: colour and a spinner on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from .run_tree import Node, RunTree

__all__ = ["View"]

MAX_WIDTH = 100
MAX_LINES = 16
MAX_LABEL = 34


class View:
    """Prints the parts of the story in order.

    Args:
        console: Where to; standard output by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _console()
        self._section = 0
        self.claims = 0

    def title(self, lines: Sequence[str]) -> None:
        """Open with what this is."""
        text = Group(*(Text.from_markup(line) for line in lines))
        self.console.print(Panel(text, title="[bold]deep-agent-mcp demo[/]", padding=(1, 2)))

    def section(self, title: str, why: str) -> None:
        """Begin a numbered section."""
        self._section += 1
        self.console.print()
        self.console.print(Rule(f"[bold]{self._section}. {title}[/]", align="left"))
        self.console.print(Text(why, style="dim"))

    def call(self, tool: str, shown: str) -> None:
        """Say which tool the client calls."""
        line = Text("> ", style="cyan").append(tool, style="bold cyan").append(f"({shown})", "cyan")
        self.console.print(line)

    def result(self, text: str, title: str = "", *, max_lines: int = MAX_LINES) -> None:
        """Show a result or a file in a panel, at most `max_lines` of it."""
        lines = text.rstrip("\n").split("\n")
        if len(lines) > max_lines:
            lines = [*lines[:max_lines], f"... {len(lines) - max_lines} more lines"]
        heading = Text(title, style="bold") if title else None
        self.console.print(
            Panel(Text("\n".join(lines)), title=heading, title_align="left", border_style="dim")
        )

    def say(self, text: str) -> None:
        """Print a plain sentence."""
        self.console.print(Text(text))

    def outcome(self, text: str) -> None:
        """Show a short result below its call."""
        lines = text.rstrip("\n").split("\n")
        self.console.print(Padding(Text("\n".join(lines[:MAX_LINES])), (0, 0, 0, 2), expand=False))

    def checkpoints(self, rows: Sequence[Mapping[str, Any]], marked: str) -> None:
        """Show checkpoints, newest first, down to the marked one."""
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        table.add_column("step", justify="right", min_width=4)
        table.add_column("checkpoint", min_width=21)
        table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
        for number, row in enumerate(rows):
            what = " ".join(str(row["summary"]).split())
            cells = (str(row["step"]), str(row["checkpoint_id"]), what)
            here = row["checkpoint_id"] == marked
            table.add_row(*(Text(cell) for cell in cells), style="bold green" if here else "")
            if here:
                earlier = len(rows) - number - 1
                table.add_row("", "", Text(f"... and {earlier} earlier ones", style="dim"))
                break
        self.console.print(table)

    def strike(self, text: str) -> None:
        """Print what must not be overlooked."""
        self.console.print(Panel(Text(text, style="bold red"), border_style="red"))

    def checked(self, claim: str) -> None:
        """Print a claim that has been verified."""
        self.claims += 1
        self.console.print(Text("[ok] ", style="bold green").append(claim, "default"))

    def tree(self, run: RunTree, title: str) -> None:
        """Show who called what, and which server process carried it."""
        self.console.print(Text(title, style="dim"))
        root = Tree(Text(run.root.label, style="bold"), guide_style="dim")
        _grow(root, run.root)
        self.console.print(root)

    def end(self, text: str) -> None:
        """Close with the sum."""
        self.console.print()
        self.console.print(Panel(Text(text, style="bold green"), border_style="green"))

    def failed(self, text: str, log: str) -> None:
        """Say what is not as it should be."""
        parts = [Text(text, style="bold")]
        if log:
            parts.append(Text("\nThe server's log ends with:\n" + log))
        self.console.print()
        self.console.print(Panel(Group(*parts), title="The demo failed", border_style="red"))

    @contextmanager
    def waiting(self, text: str) -> Generator[Callable[[str], None]]:
        """Show a progress line while something runs; yields the function that changes it."""
        if not self.console.is_terminal:
            yield lambda _: None
            return
        with self.console.status(Text(text, style="dim")) as status:
            room = max(20, self.console.width - 4)

            def update(line: str) -> None:
                line = " ".join(line.split())
                cut = line if len(line) <= room else line[: room - 3] + "..."
                status.update(Text(cut, style="dim"))

            yield update


def _grow(tree: Tree, agent: Node) -> None:
    for call in agent.children:
        label = call.label if len(call.label) <= MAX_LABEL else call.label[: MAX_LABEL - 3] + "..."
        line = Text(label, style="cyan")
        notes = [f"server {call.process}"]
        if call.asked:
            notes.append("approved" if call.finished else "waits for approval")
        if call.resumed:
            notes.append("continued by server 2")
        later = call.resumed or call.process > 1
        line.append(f"  ({', '.join(notes)})", style="green" if later else "dim")
        branch = tree.add(line)
        for below in call.children:
            _grow(branch.add(Text(below.label, style="bold")), below)


def _console() -> Console:
    out: TextIO = sys.stdout
    if isinstance(out, TextIOWrapper):
        out.reconfigure(errors="replace")  # what a narrow encoding lacks must not end the demo
    console = Console(highlight=False)
    if not console.is_terminal or console.width > MAX_WIDTH:
        console.width = min(console.width, MAX_WIDTH)
    return console
