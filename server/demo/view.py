"""What the demo puts on the screen: colour and a spinner on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text
from rich.tree import Tree

from server.demo.run_tree import RunTree

__all__ = ["View"]

MAX_WIDTH = 100
MAX_LINES = 12


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

    def strike(self, text: str) -> None:
        """Print what must not be overlooked."""
        self.console.print(Panel(Text(text, style="bold red"), border_style="red"))

    def checked(self, claim: str) -> None:
        """Print a claim that has been verified."""
        self.claims += 1
        self.console.print(Text("[ok] ", style="bold green").append(claim, "default"))

    def tree(self, run: RunTree, title: str) -> None:
        """Show who called what, and on which side of the kill."""
        root = Tree(Text(title, style="bold"))
        for node in run.roots:
            _grow(root, node.label, node)
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
