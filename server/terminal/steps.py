"""Steps: turns the events of a run into lines for a person who watches it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from ...harness._internal.records import record
from . import one_line

__all__ = ["SEPARATOR", "Event", "Kind", "Step", "Steps"]

Event: TypeAlias = Mapping[str, Any]
"""An event, in the form of `run://ID/events`."""

Kind: TypeAlias = Literal["text", "call", "done", "failed", "waits", "note"]

SEPARATOR = " \u203a "

_SUBJECTS = ("command", "file_path", "path", "pattern", "description", "url", "query", "name")
"""Arguments that describe a call best, most useful first."""

_IN_TEXT = {
    name: re.compile(rf'"{name}": ?"((?:[^"\\]|\\.)*)') for name in _SUBJECTS
}  # of arguments that were too long for an object


@record
class Step:
    """One thing that happened in a run.

    Attributes:
        kind: What happened.
        agent: The agent that did it, after the agents that called it.
        depth: How many agents are above it.
        text: A line about it; for `text`, the whole text.
    """

    kind: Kind
    agent: str
    depth: int
    text: str


class Steps:
    """Turns events of a run into steps.

    An agent's text is held back until the agent does something else, because its last text is
    the answer, which is shown separately.

    Attributes:
        model_calls: Number of models' answers so far.
        tokens: Tokens that they used.
        wrote_todos: Whether the main agent's list has changed since this was set to False. The
            list is stored with the step, so this is set again once the step has ended.
    """

    def __init__(self) -> None:
        self.model_calls = 0
        self.tokens = 0
        self.wrote_todos = False
        self._writes_todos = False
        self._said: dict[tuple[str, ...], Step] = {}
        self._about: dict[tuple[str, ...], str] = {}

    def hear(self, event: Event, *, at_once: bool = False) -> list[Step]:
        """Add an event; return the steps to show, including held back text if `at_once`."""
        path = tuple(str(one) for one in event.get("path") or ("main",))
        agents = path[: len(path) - (len(path) % 2 == 0)]
        found: list[Step] = []
        held = self._said.pop(agents, None)
        if held is not None:
            found.append(held)
        step = self._step(event, path, agents)
        if step is not None and step.kind == "text" and not at_once:
            self._said[agents] = step
        elif step is not None:
            found.append(step)
        return found

    def _step(self, event: Event, path: tuple[str, ...], agents: tuple[str, ...]) -> Step | None:
        match event.get("event"):
            case "model_end":
                self._count(event.get("usage"))
                if len(agents) == 1:
                    self.wrote_todos = self.wrote_todos or self._writes_todos
                    self._writes_todos = False
                text = str(event.get("text") or "")
                return self._made("text", agents, text) if text.strip() else None
            case "tool_start":
                about = f"{event.get('name')} {_subject(event.get('args'))}".rstrip()
                self._about[path] = about
                return self._made("call", agents, about) if event.get("name") == "task" else None
            case "tool_end":
                return self._ended(event, path, agents)
            case "message_taken":
                return self._made("note", agents, f"took your message: {event.get('text')}")
            case _:
                return self._noted(event, agents)

    def _ended(self, event: Event, path: tuple[str, ...], agents: tuple[str, ...]) -> Step:
        about = self._about.pop(path, None) or str(event.get("name"))
        match event.get("status"):
            case "waiting":
                self._about[path] = about
                return self._made("waits", agents, f"{about} waits for an answer")
            case "error":
                said = one_line(str(event.get("text") or ""), 200)
                return self._made("failed", agents, f"{about}: {said}")
            case _:
                return self._made("done", agents, about)

    def _noted(self, event: Event, agents: tuple[str, ...]) -> Step | None:
        if event.get("mode") != "custom":
            return None
        data = event.get("data")
        if isinstance(data, str):  # the beginning of something long
            found = re.match(r'\{"event": "(\w+)"', data)
            name, text = found[1] if found else "", ""
        else:
            facts = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
            name, text = str(facts.get("event") or ""), str(facts.get("text") or "")
        if name == "todos":
            self._writes_todos = self.wrote_todos = len(agents) == 1 or self.wrote_todos
            return None
        return self._made("note", agents, text) if name == "model_retry" else None

    def _made(self, kind: Kind, agents: tuple[str, ...], text: str) -> Step:
        text = text if kind == "text" else one_line(text, 300)
        return Step(kind, SEPARATOR.join(agents[::2]), len(agents) // 2, text)

    def _count(self, usage: object) -> None:
        self.model_calls += 1
        if isinstance(usage, str):
            try:
                usage = json.loads(usage)
            except ValueError:
                return
        if isinstance(usage, dict):
            counts = cast("dict[str, Any]", usage).values()
            self.tokens += sum(one for one in counts if isinstance(one, int))


def _subject(args: object) -> str:
    """Return the argument that describes a call best."""
    for name in _SUBJECTS:
        if isinstance(args, dict):
            value: object = cast("dict[str, object]", args).get(name)
        else:
            found = _IN_TEXT[name].search(str(args or ""))
            value = found[1] if found else None
        if isinstance(value, str) and value:
            return one_line(value, 100)
    return ""
