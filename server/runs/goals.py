"""Goals: the work that a caller of `task` asks for, with the files attached to it.

A goal that waits in line is stored as an event of its run. So it is encrypted, deleted and
exported with the run's other data, and any server that starts the run finds it.

Files are written when the run holds its thread, just before its input is accepted. A call that is
refused leaves no files; a call that is interrupted in between leaves unused files.

This module also remembers which answers are JSON of a schema, because a run's record does not.
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
    "QUEUED",
    "Goal",
    "StructuredRuns",
    "TaskInput",
    "inputs_directory",
    "kept_goal",
    "structured_result",
]

_INPUTS = "inputs"

_MOST_SHOWN = 7_000_000
"""The most bytes of images in one message."""


@record
class TaskInput:
    """A file attached to a goal.

    Attributes:
        path: Its path for the agent.
        data: Its content.
    """

    path: str
    data: bytes

    @property
    def line(self) -> str:
        """A line about the file, for the agent and the caller."""
        media = media_type_of(self.data)
        about = size_text(len(self.data))
        return f"{self.path} ({about if media is None else f'{media}, {about}'})"


def inputs_directory(settings: Settings, backend: Backend) -> str:
    """Return the directory for files of goals; if commands are on, one that commands can see."""
    if settings.execute == "off" or settings.root is None:
        return f"/{_INPUTS}"
    from ...harness.backends.mounts import mounted_directories  # few run commands

    confined = settings.execute != "host"
    places = mounted_directories(backend, confined=confined)
    return next(one.place for one in places if one.root is not None) + f"/{_INPUTS}"


def told(goal: str, inputs: Sequence[TaskInput]) -> str:
    """Return the text of a goal followed by the names of its files."""
    if not inputs:
        return goal
    return "\n".join(
        [f"{goal}\n\nFiles that come with this:", *(f"- {one.line}" for one in inputs)]
    )


async def with_images(goal: str, inputs: Sequence[TaskInput]) -> Content:
    """Return the message for the model: the goal, the names of its files, and its images.

    Images beyond `_MOST_SHOWN` bytes are only named.
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
    """Write the files, if the rules allow `write_file` to do so.

    Raises:
        HarnessError: One cannot be written; nothing was started.
    """
    allowed = [(one, _allowed(agent, one.path, principal)) for one in inputs]
    for one, policy in allowed:  # one at a time, as all at once would keep the event loop too long
        files = {one.path: one.data}
        (done,) = await upload_files(
            agent, thread_id, files, principal=principal, policy=policy, gives_up=True
        )
        if not done.ok:
            why = done.message.partition(" Nothing was done.")[0]
            raise HarnessError(f"Nothing was started: {why} Leave files out, or remove the cause.")


def _allowed(agent: Agent, path: str, principal: str) -> CallAuthorization:
    """Return the authorization to write a file, which also judges where links lead.

    Raises:
        HarnessError: The agent has no files, or the policy guards the path; nothing was started.
    """
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
    return asked


_MOST = 10_000


class StructuredRuns:
    """Remembers which runs have a structured answer, for runs that ended or were read here."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    async def data_of(self, run: Run, agents: Agents) -> JsonValue:
        """Return the structured answer of a run, parsed from its record; None without one."""
        if run.kind != "delegate" or run.status != "done" or not (run.answer or "").startswith("{"):
            return None
        is_structured = self._known.get(run.id)
        if is_structured is None:  # it ended in another process
            try:
                await agents.prepare(run.id)
                agent = agents(run.id)
                choices = await agent.choices_of(run.id)
            except HarnessError:  # its agent cannot be built now; the answer's text is still there
                return None
            chosen = choices is not None and choices.output_schema is not None
            is_structured = chosen or agent.definition.output is not None
            self.note(run.id, is_structured=is_structured)
        try:
            return json.loads(run.answer or "") if is_structured else None
        except ValueError:
            return None

    def note(self, run_id: str, *, is_structured: bool) -> None:
        """Remember whether a run has a structured answer."""
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
"""Mode of the event that stores a goal; it is always the first event of its run."""


@record
class Goal:
    """A goal with its options and files.

    Attributes:
        text: What to do.
        agent: The subagent that gets it directly; empty for the main agent.
        task_id: The earlier call whose subagent continues; empty for none.
        choices: The options that the caller chose.
        inputs: The attached files.
        priority: Its priority among the caller's goals; see `Leg`.
        interrupts: Whether it ends the working run of its thread and comes next.
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
        """Run the goal, and return where the run stops.

        Args:
            own: The agent that continues the thread.
            main: The agent that calls subagents.
            run_id: The run.
            thread_id: Its thread.
            options: The run's options.
        """
        options = replace(options, choices=self.choices)
        named = {"subagent_type": self.agent, "task_id": self.task_id}
        args: dict[str, JsonValue] = {key: value for key, value in named.items() if value}
        if self.inputs:
            # First the checks that may refuse the goal, because files would stay.
            await anyio.to_thread.run_sync(own.definition.chosen, self.choices)
            await place_inputs(own, thread_id, self.inputs, options.principal)
        if not args:
            said = {"messages": [HumanMessage(await with_images(self.text, self.inputs))]}
            return await own.ainvoke(said, thread_id=thread_id, options=options)
        args["description"] = told(self.text, self.inputs)
        call = ToolCall(call_id(run_id), "task", args)
        options = replace(options, goal=self._shown(main))
        return await main.adrive([call], thread_id=thread_id, options=options)

    @property
    def size(self) -> int:
        """How many bytes its files have."""
        return sum(len(one.data) for one in self.inputs)

    def _shown(self, agent: Agent) -> str:
        """Return the goal as lists may show it; nothing if it must stay in its thread."""
        try:
            return self.screened(agent).text
        except HarnessError:
            return ""

    @property
    def kind(self) -> Literal["drive", "delegate"]:
        """The kind of its run in the record."""
        return "drive" if self.agent or self.task_id else "delegate"

    def screened(self, agent: Agent) -> Goal:
        """Return the goal as it may be stored: redacted like the agent's input.

        Raises:
            HarnessError: It must not be stored outside its thread, or a rule blocks it.
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
        """Return the event that stores the goal."""
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
        """Return the goal that an event of `kept` stores."""
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
    """Return the goal of a run that waits, or has waited, in line; None if it is not stored."""
    found = await journal.events(run_id, limit=1)
    if not found or found[0].mode != QUEUED:
        return None
    data = cast("dict[str, Any]", found[0].data)
    size = sum(len(body) for _, body in data.get("inputs", ()))
    return await work_apart(partial(Goal.of, found[0]), size)
