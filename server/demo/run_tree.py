"""Who called what in a run, gathered from the progress messages of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Node", "RunTree"]

SEPARATOR = " › "
THINKING = "thinking"
"""What the server reports when a model call begins."""


@dataclass(slots=True)
class Node:
    """An agent or a tool call.

    Attributes:
        label: Its name and, for a call, what it was about.
        tool: The tool, for a call.
        process: Which server process reported it, counted from 1.
        again: Whether a later process took it up again because it had not finished.
        children: Calls of an agent, or the agent below a call.
    """

    label: str
    tool: str = ""
    process: int = 1
    again: bool = False
    children: list[Node] = field(default_factory=list["Node"])


class RunTree:
    """Collects progress messages of one run from one or more server processes.

    Args:
        tools: Names of the tools an agent may call; anything else in a message is not a call.
    """

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = frozenset(tools)
        self.roots: list[Node] = []
        self.process = 1

    def hear(self, message: str) -> tuple[str, ...]:
        """Take in a message; return the agents it names if a model call of theirs begins."""
        agents_text, colon, what = message.partition(": ")
        agents = tuple(agents_text.split(SEPARATOR))
        tool = what.partition(" ")[0]
        if not colon:
            return ()
        if what == THINKING:
            self._agent(agents)
            return agents
        if tool in self._tools and " failed: " not in what and " waits for " not in what:
            self._call(self._agent(agents), tool, what)
        return ()

    def calls(self, process: int | None = None) -> list[Node]:
        """Return the tool calls, outermost agent first, of one process or of all."""
        found: list[Node] = []

        def walk(nodes: Sequence[Node]) -> None:
            for node in nodes:
                if node.tool and process in (None, node.process):
                    found.append(node)
                walk(node.children)

        walk(self.roots)
        return found
