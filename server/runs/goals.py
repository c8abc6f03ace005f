"""Goals: what a caller of `task` wants done, with the files that come with it.

A goal that waits in line is an event of its run. So it is sealed, deleted and exported like all
that a run has left, and whichever server begins the run finds it there.

Files are written when the run has its thread to itself, just before its input is accepted. A call
that is refused leaves none; one that is cut off in between leaves files that nobody knows about.

Also remembered here is which answers are JSON of a schema, because a run's record does not say.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal, cast

import anyio.to_thread
from pydantic import JsonValue

from ...harness._internal.concurrency import work_apart
from ...harness._internal.records import record
from ...harness.agent import Agent, RunOptions, RunResult
from ...harness.backends.base import Backend, size_text
from ...harness.backends.file_tools.results import MAX_IMAGE_BYTES, media_content, media_type_of
from ...harness.backends.transfer import upload_files
from ...harness.checkpoint.base import Checkpointer, Run, RunEvent
from ...harness.errors import HarnessError
from ...harness.loop.run.choices import RunChoices
from ...harness.messages.message import (
    Content,
    HumanMessage,
    ImageBlock,
    TextBlock,
    ToolCall,
    ToolMessage,
)
from ...harness.policy import CallAuthorization
from ..engine import USUAL_PRIORITY
from ..settings.settings import Settings
from .active_run import call_id
from .contracts import Agents

__all__ = [
    "Goal",
    "StructuredRuns",
    "TaskInput",
    "inputs_directory",
    "kept_goal",
    "structured_result",
]

_INPUTS = "inputs"

_MOST_SHOWN = 7_000_000
"""Bytes of images in one message."""


@record
class TaskInput:
    """A file that comes with a goal.

    Attributes:
        path: Where the agent finds it.
        data: What it holds.
    """

    path: str
    data: bytes

    @property
    def line(self) -> str:
        """The line about it for the agent and the caller."""
        media = media_type_of(self.data)
        about = size_text(len(self.data))
        return f"{self.path} ({about if media is None else f'{media}, {about}'})"


def inputs_directory(settings: Settings, backend: Backend) -> str:
    """Return where files of goals go: with commands on, where commands see them."""
    if settings.execute == "off" or settings.root is None:
        return f"/{_INPUTS}"
    from ...harness.backends.mounts import mounted_directories  # few run commands

    confined = settings.execute != "host"
    places = mounted_directories(backend, confined=confined)
    return next(one.place for one in places if one.root is not None) + f"/{_INPUTS}"


def told(goal: str, inputs: Sequence[TaskInput]) -> str:
    """Return a goal that names the files that came with it."""
    if not inputs:
        return goal
    return "\n".join(
        [f"{goal}\n\nFiles that come with this:", *(f"- {one.line}" for one in inputs)]
    )


async def with_images(goal: str, inputs: Sequence[TaskInput]) -> Content:
    """Return what a model reads: the goal, the names of its files, and its images themselves.

    Images beyond `_MOST_SHOWN` are among the files alone.
    """
    text = told(goal, inputs)
    blocks: list[TextBlock | ImageBlock] = [TextBlock(text)]
    left = _MOST_SHOWN
    for one in inputs:
        is_image = (media_type_of(one.data) or "").startswith("image/")
        if not is_image or len(one.data) > min(left, MAX_IMAGE_BYTES):
            continue
        left -= len(one.data)
        shown = await work_apart(partial(media_content, one.path, one.data), len(one.data))
        found = shown if isinstance(shown, tuple) else ()
        blocks += [block for block in found if isinstance(block, TextBlock | ImageBlock)]
    return text if len(blocks) == 1 else tuple(blocks)


async def place_inputs(
    agent: Agent, thread_id: str, inputs: Sequence[TaskInput], principal: str
) -> None:
    """Write the files, as far as the rules let `write_file` do so.

    Raises:
        HarnessError: One cannot be written; nothing was started.
    """
    for one in inputs:
        _require_allowed(agent, one.path, principal)
    if not inputs:
        return
    for one in inputs:  # one at a time, as all at once would keep the event loop too long
        files = {one.path: one.data}
        (done,) = await upload_files(agent, thread_id, files, principal=principal)
        if not done.ok:
            raise HarnessError(f"Nothing was started: {done.message}")


def _require_allowed(agent: Agent, path: str, principal: str) -> None:
    definition = agent.definition
    writer = definition.tools.get("write_file")
    if writer is None:
        raise HarnessError("Nothing was started: the agent has no files. Leave files out.")
    reader = definition.tools.get("read_file", writer)
    args: dict[str, JsonValue] = {"path": path, "content": ""}
    policy = definition.pipeline.policy
    asked = CallAuthorization(policy, writer.name, args, writer, reader, (agent.name,), principal)
    verdict = asked.judge()
    if verdict.action != "allow":
        raise HarnessError(
            f"Nothing was started: files of a task are written to {path}, which the policy guards "
            f"({verdict.reason}). Leave files out."
        )


_MOST = 10_000


class StructuredRuns:
    """Of the runs that ended in this process, or were looked up: whether the answer is data."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    async def data_of(self, run: Run, agents: Agents) -> JsonValue:
        """Return the structured answer of a run, which its record has as JSON; None without one."""
        if run.kind != "delegate" or run.status != "done" or not (run.answer or "").startswith("{"):
            return None
        is_structured = self._known.get(run.id)
        if is_structured is None:  # it ended in another process
            try:
                await agents.prepare(run.id)
                agent = agents(run.id)
                choices = await agent.choices_of(run.id)
            except HarnessError:  # of an agent that cannot be built now; the text is there
                return None
            chosen = choices is not None and choices.output_schema is not None
            is_structured = chosen or agent.definition.output is not None
            self.note(run.id, is_structured=is_structured)
        try:
            return json.loads(run.answer or "") if is_structured else None
        except ValueError:
            return None

    def note(self, run_id: str, *, is_structured: bool) -> None:
        """Remember it."""
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[run_id] = is_structured

    def note_result(self, result: RunResult) -> None:
        """Remember how a run ended."""
        if result.run.kind == "delegate" and result.run.status == "done":
            self.note(result.run.id, is_structured=result.structured_response is not None)


def structured_result(result: ToolMessage | None) -> JsonValue:
    """Return the structured answer of a subagent, if the result of `task` has one."""
    if result is None or result.name != "task" or not isinstance(result.artifact, dict):
        return None
    return result.artifact.get("answer")


QUEUED = "queued"
"""Mode of the event that keeps a goal; always the first one of its run."""


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
