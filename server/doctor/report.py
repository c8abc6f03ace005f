"""The doctor's report for people: a line for each thing, and below it what to do about it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .findings import Finding, Status
from .handshakes import Handshake

__all__ = ["Report"]

_STYLES: dict[Status, str] = {"ok": "green", "note": "yellow", "broken": "bold red"}


class Report:
    """Prints findings as they come.

    Args:
        console: Where to; without a terminal it prints plain lines.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_clients = False

    def show(self, found: Finding | Handshake) -> None:
        """Print one."""
        if isinstance(found, Finding):
            self._line(found.status, found.about, found.text)
            self._below("fix: ", found.fix)
            return
        if not self._in_clients:
            self._in_clients = True
            self._print(Text("\nThe server, as each client meets it:", style="bold"))
        self._line(found.status, found.client.title, _summary(found))
        self._below("cannot: ", "; ".join(found.client.cannot))
        for one in found.notes:
            self._below("note: ", one)
        for text, fix in found.problems:
            self._below("broken: ", text)
            self._below("fix: ", fix)

    def end(self, broken: int) -> None:
        """Print what it comes to."""
        words = "Nothing is broken." if not broken else f"Broken: {broken}. See `fix` above."
        self._print(Text(f"\n{words}", style="bold"))

    def _line(self, status: Status, about: str, text: str) -> None:
        line = Text(f"{status:<7}", style=_STYLES[status])
        line.append(f"{about}: ", style="bold not green not yellow not red")
        line.append(text, style="not bold default")
        self._print(line)

    def _below(self, label: str, text: str) -> None:
        if text:
            lines = text.splitlines()
            self._print(Text("\n".join([f"        {label}{lines[0]}", *lines[1:]]), style="dim"))

    def _print(self, text: Text) -> None:
        # Names and errors may come from files that others wrote: no escapes to the terminal.
        plain = "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text.plain)
        text.plain = plain
        self._console.print(text, soft_wrap=True)


def _summary(found: Handshake) -> str:
    parts = [found.client.protocol]
    if found.seconds is not None:
        parts.append(f"first answer {found.seconds:.2f} s")
    if found.tools:
        parts.append(f"{found.tools} tools")
    return "; ".join([*parts, *found.does])
