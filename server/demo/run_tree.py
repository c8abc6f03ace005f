"""Run tree: who called what in a run, gathered from progress messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Node", "RunTree"]

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
