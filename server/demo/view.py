"""View of the demo: its terminal, who called what, and proof from disk.

A terminal gets colour and a spinner, everything else plain text. Who called what is gathered from
progress messages; claims are proved from disk, journal and transcript.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ...harness._internal.records import record
from ...harness.checkpoint.base import Run
from ...harness.checkpoint.sqlite import SqliteCheckpointer

__all__ = ["DemoFailed", "Journal", "Node", "RunTree", "Stamp", "View", "open_calls", "stamp"]


_CALLED = re.compile(r"^Calls `(\w+)`:$", re.MULTILINE)
_RETURNED = re.compile(r"^### Result of (\w+)", re.MULTILINE)


class DemoFailed(Exception):
    """Something is not as the demo says it is."""


@record
class Stamp:
    """Identifies one writing of a file: another one has another time and, mostly, inode."""

    inode: int
    modified_ns: int


def stamp(path: Path) -> Stamp:
    """Return when and where a file was written.

    Raises:
        DemoFailed: There is no such file.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise DemoFailed(f"{path.name} should be on disk by now, and is not") from None
    return Stamp(found.st_ino, found.st_mtime_ns)


@record
class Journal:
    """Journal of a run, read without any server.

    Attributes:
        run: Its record.
        checkpoints: How many steps of its thread are finished.
        changes: Every change of a file, oldest first: the path and a digest of the new content.
    """

    run: Run
    checkpoints: int
    changes: Sequence[tuple[str, str | None]]

    @classmethod
    async def read(cls, file: Path, run_id: str) -> Journal:
        """Read it.

        Raises:
            DemoFailed: The run is not there.
        """
        async with SqliteCheckpointer(file) as journal:
            run = await journal.run(run_id)
            if run is None:
                raise DemoFailed(f"run {run_id} is not in the journal")
            history = await journal.history(run.thread_id, limit=1_000)
            changes = await journal.file_changes(run.thread_id, 0)
        made = tuple((one.path, one.after_digest) for one in reversed(changes))
        return cls(run, len(history), made)


def open_calls(transcript: str) -> tuple[int, dict[str, int]]:
    """Return how many tool calls a transcript has, and per tool how many results are missing.

    A negative number says that there are more results than calls.
    """
    called, returned = Counter(_CALLED.findall(transcript)), Counter(_RETURNED.findall(transcript))
    names = called.keys() | returned.keys()
    missing = {name: called[name] - returned[name] for name in sorted(names)}
    return called.total(), {name: number for name, number in missing.items() if number}


SEPARATOR = " \u203a "
THINKING = "thinking"
WAITS = "waits for an answer"


@dataclass(slots=True)
class Node:
    """An agent, or a tool call of an agent.

    Attributes:
        label: The agent's name, or the tool and what the call is about.
        tool: The tool, for a call.
        process: The server process that first reported it, counted from 1.
        asked: Whether the call waited for an approval.
        finished: Whether the call has a result: its agent has gone on thinking since.
        resumed: Whether a later process went on with the unfinished call.
        children: Calls of an agent, or the agent below a call.
    """

    label: str
    tool: str = ""
    process: int = 1
    asked: bool = False
    finished: bool = False
    resumed: bool = False
    children: list[Node] = field(default_factory=list["Node"])


class RunTree:
    """Collects the progress messages of one run from one or more server processes.

    Args:
        tools: Names of the tools an agent may call; other words in a message are not a call.

    Attributes:
        root: The agent that got the goal.
        process: The server process that reports now, counted from 1.
        repeated: Calls that were reported again although they had finished.
    """

    def __init__(self, tools: Iterable[str]) -> None:
        self._tools = frozenset(tools)
        self.root = Node("main")
        self.process = 1
        self.repeated: list[str] = []

    def hear(self, message: str) -> tuple[str, ...]:
        """Take in a message; if an agent begins to think, return the names down to that agent."""
        place, _, what = message.partition(": ")
        agents = tuple(place.split(SEPARATOR))
        tool, _, rest = what.partition(" ")
        if what == THINKING:
            for call in self._agent(agents).children:
                call.finished = True
            return agents
        if tool not in self._tools or rest.startswith("failed: "):
            return ()
        if rest == WAITS:
            self.ask(tool, agents)
            return ()
        self._call(self._agent(agents), tool, what)
        return ()

    def ask(self, tool: str, agents: Sequence[str]) -> None:
        """Note that an agent's unfinished calls of a tool wait for an approval."""
        for call in self._agent(agents).children:
            call.asked = call.asked or (call.tool == tool and not call.finished)

    def calls(self) -> list[Node]:
        """Return all calls, each before those below it."""
        return list(_calls(self.root))

    def _agent(self, agents: Sequence[str]) -> Node:
        node = self.root
        for name in agents[1:]:
            call = next((one for one in reversed(node.children) if one.tool == "task"), node)
            below = next((one for one in call.children if one.label == name), None)
            if below is None:
                below = Node(name, process=self.process)
                call.children.append(below)
            node = below
        return node

    def _call(self, agent: Node, tool: str, label: str) -> None:
        known = [one for one in agent.children if one.label == label]
        for one in known:
            if not one.finished and (one.asked or one.process != self.process):
                one.resumed = one.process != self.process
                return
        if any(one.process != self.process for one in known):
            self.repeated.append(label)
        agent.children.append(Node(label, tool, self.process))


def _calls(agent: Node) -> Iterable[Node]:
    for call in agent.children:
        yield call
        for below in call.children:
            yield from _calls(below)


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
        """Show who called what, and which server process executed it."""
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
