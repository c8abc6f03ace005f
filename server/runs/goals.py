"""Goals: what a caller of `task` wants done, stored until its run starts.

A goal that waits in line is an event of its run. So it is sealed, deleted and exported like all
that a run has left, and whichever server begins the run finds it there.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Literal, cast

import anyio.to_thread
from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.agent import Agent, RunOptions, RunResult
from ...harness.checkpoint.base import Checkpointer, RunEvent
from ...harness.errors import HarnessError
from ...harness.loop.run.choices import RunChoices
from ...harness.messages.message import HumanMessage, ToolCall
from ..engine import USUAL_PRIORITY
from .task_inputs import TaskInput, place_inputs, told, with_images

__all__ = ["QUEUED", "Goal", "call_id", "kept_goal"]

QUEUED = "queued"
"""Mode of the event that keeps a goal; always the first one of its run."""


def call_id(run_id: str) -> str:
    """Return the id of the tool call of a driven run: its result is found by it."""
    return "call_" + run_id.partition("_")[2]


@record
class Goal:
    """A goal with all that belongs to it.

    Attributes:
        text: What shall be done.
        agent: The subagent that it is given to directly; empty for the main agent.
        task_id: The subagent of an earlier call that goes on; empty for none.
        choices: What the caller chose.
        inputs: Files that come with it.
        priority: Among the caller's goals; see `Leg`.
        interrupts: Whether it is next on its thread, and the run at work there is ended for it.
    """

    text: str
    agent: str = ""
    task_id: str = ""
    choices: RunChoices | None = None
    inputs: Sequence[TaskInput] = field(default=())
    priority: int = USUAL_PRIORITY
    interrupts: bool = False

    async def begin(
        self, own: Agent, main: Agent, run_id: str, thread_id: str, options: RunOptions
    ) -> RunResult:
        """Have agents work on it, and return where the run stops.

        Args:
            own: Who goes on with the thread.
            main: Who calls subagents.
            run_id: The run.
            thread_id: Its thread.
            options: Of the run.
        """
        options = replace(options, choices=self.choices)
        named = {"subagent_type": self.agent, "task_id": self.task_id}
        args: dict[str, JsonValue] = {key: value for key, value in named.items() if value}
        if self.inputs:
            # First what may be refused: files would stay.
            await anyio.to_thread.run_sync(own.definition.chosen, self.choices)
            await place_inputs(own, thread_id, self.inputs, options.principal)
        if not args:
            said = {"messages": [HumanMessage(await with_images(self.text, self.inputs))]}
            return await own.ainvoke(said, thread_id=thread_id, options=options)
        args["description"] = told(self.text, self.inputs)
        call = ToolCall(call_id(run_id), "task", args)
        return await main.adrive([call], thread_id=thread_id, options=options)

    @property
    def kind(self) -> Literal["drive", "delegate"]:
        """What its run is recorded as."""
        return "drive" if self.agent or self.task_id else "delegate"

    def screened(self, agent: Agent) -> Goal:
        """Return it as it may be stored: without what the agent redacts in input.

        Raises:
            HarnessError: It may not be stored outside of its thread, or a rule blocks it.
        """
        rules = agent.definition.states.rules
        if not rules:
            return self
        from ...harness.loop.run.redaction import RunRedaction
        from ...harness.redaction.rules import Keys

        if any(one.needs_key for one in rules):
            raise HarnessError("what is redacted in it needs the secret of its thread")
        return replace(self, text=RunRedaction(rules, Keys()).text(self.text, "input"))

    def kept(self, run_id: str) -> RunEvent:
        """Return the event that keeps it."""
        data: dict[str, JsonValue] = {"event": QUEUED, "goal": self.text}
        if self.agent:
            data["agent"] = self.agent
        if self.task_id:
            data["task_id"] = self.task_id
        if self.choices is not None:
            data["choices"] = self.choices.to_json()
        if self.inputs:
            data["inputs"] = [[one.path, b64encode(one.data).decode()] for one in self.inputs]
        if self.priority != USUAL_PRIORITY:
            data["priority"] = self.priority
        if self.interrupts:
            data["interrupts"] = True
        return RunEvent(run_id, QUEUED, (), data)

    @staticmethod
    def of(event: RunEvent) -> Goal:
        """Return what `kept` made."""
        data = cast("dict[str, Any]", event.data)
        return Goal(
            data["goal"],
            data.get("agent", ""),
            data.get("task_id", ""),
            RunChoices.from_json(data.get("choices")),
            [TaskInput(path, b64decode(body)) for path, body in data.get("inputs", ())],
            data.get("priority", USUAL_PRIORITY),
            data.get("interrupts", False),
        )


async def kept_goal(journal: Checkpointer, run_id: str) -> Goal | None:
    """Return the goal of a run that waits, or has waited, in line; None if it is not kept."""
    found = await journal.events(run_id, limit=1)
    return Goal.of(found[0]) if found and found[0].mode == QUEUED else None
