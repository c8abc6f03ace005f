"""Driven tools: the agent's own tools, called by a client's model; each call is a run.

Names, schemas and behaviour are the same as for the agent. Only the argument `thread_id` is added,
because calls do not depend on a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
)
from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.loop.hooks.middleware import AgentMiddleware
from ...harness.messages.message import ToolMessage, is_media
from ...harness.tools.schemas import without_nulls
from ...harness.tools.tool import InvalidArguments, Tool
from ..auth.caller import Scope, current_client
from ..mcp.media import media_block
from ..mcp.requests import Context, Services, takes_tasks, wait_budget
from ..results import Answer, error
from ..runs.accounts import Snapshot
from . import FaceTool, Handler, TaskStarted, ToolReply, brief, define, plain
from .run_results import run_result
from .wait_for_run import resumed_run, wait_for_run

__all__ = ["DRIVEN", "DRIVING", "drivable", "driven_result", "driven_tool"]

DRIVEN = ("write_todos", "ls", "read_file", "write_file", "edit_file", "glob", "grep", "skill")
"""The agent's tools that clients can call, in the order of the tool list."""

DRIVING: frozenset[Scope] = frozenset({"drive"})
"""Scopes for these tools; a caller needs one of them."""

TASK_AFTER_SECONDS = 0.5
"""Time after which a call continues as a task, if the client supports tasks."""

_OURS = f"{AgentMiddleware.__module__.partition('.harness.')[0]}.harness.middleware."

DOCUMENTS = frozenset({"read_file", "skill"})
ALWAYS_LOAD = frozenset({"write_todos", "skill"})

THREAD_ID: dict[str, JsonValue] = {"type": "string"}
"""Schema without a description: the server's instructions and `task` explain threads."""


def drivable(agent: Agent) -> frozenset[str]:
    """Return the names of an agent's built-in tools; custom tools with these names are excluded."""
    return frozenset(
        tool.name
        for one in agent.definition.middleware
        if any(kind.__module__.startswith(_OURS) for kind in type(one).__mro__)
        for tool in one.tools
        if tool.name in agent.tools
    )


def driven_tool(tool: Tool, services: Services) -> FaceTool:
    """Return an MCP tool for one of the agent's tools."""
    schema = brief(plain(tool.parameters))
    properties = schema["properties"]
    assert isinstance(properties, dict)
    properties["thread_id"] = dict(THREAD_ID)
    definition = define(
        tool.name,
        tool.title or tool.name,
        tool.description,
        schema,
        read_only=tool.read_only,
        destructive=tool.destructive,
        idempotent=tool.idempotent,
        open_world=tool.open_world,
        always_load=tool.name in ALWAYS_LOAD,
        tasks="forbidden" if tool.name in DRIVEN else "optional",
    )
    return FaceTool(definition, _handler(tool, services), DRIVING)


def _handler(tool: Tool, services: Services) -> Handler:
    async def call(
        ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        seconds = wait_budget(services.settings, current_client.get())
        run_id = None if params.request_state is None else resumed_run(params)
        notes: Sequence[str] = ()
        if run_id is None:
            thread_id = args.pop("thread_id", None)
            if not isinstance(thread_id, str | None):
                return error(f"{tool.name} did nothing: thread_id must be a string.")
            args = _checked(tool, args)  # before anything is stored
            as_task = tool.name not in DRIVEN and takes_tasks(ctx, params)
            wait = min(seconds, TASK_AFTER_SECONDS) if as_task else seconds
            place = await services.place(ctx, thread_id)
            drive = partial(services.runs.drive, tool.name, args, seconds=wait)
            snapshot, notes = await place.use(drive)
            run_id = snapshot.run.id
            if as_task and snapshot.run.status in ("running", "needs_approval"):
                if await services.runs.is_stored(run_id):
                    return TaskStarted(run_id, notes)
            elif snapshot.run.status != "needs_approval":
                return driven_result(tool, snapshot, notes)
        settled = await wait_for_run(ctx, services, params, run_id, seconds)
        if isinstance(settled, InputRequiredResult):
            return settled
        return driven_result(tool, settled, notes)

    return call


def _checked(tool: Tool, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return valid arguments, without the nulls that the tool does not accept.

    Raises:
        InvalidArguments: The arguments are invalid.
    """
    try:
        tool.validate(args)
    except InvalidArguments:
        kept = without_nulls(tool.parameters, args)
        if len(kept) == len(args):
            raise
        return _checked(tool, kept)
    return args


def driven_result(tool: Tool, snapshot: Snapshot, notes: Sequence[str] = ()) -> CallToolResult:
    """Return the result of a driven call, or the status of its run.

    Args:
        tool: The tool.
        snapshot: Snapshot of the run.
        notes: Additional notes for the caller.
    """
    if notes:
        snapshot = replace(snapshot, notes=(*snapshot.notes, *notes))
    run = snapshot.run
    if run.status in ("running", "needs_approval", "paused", "cancelled"):
        return run_result(snapshot)
    message = snapshot.result
    if message is None:
        why = run.reason or "there is no result"
        return error(
            f"{tool.name} did not finish: {why}. Thread: {run.thread_id}.", thread_id=run.thread_id
        )
    thread_id, notes, text = run.thread_id, snapshot.notes, message.text
    lines = (f"thread_id: {thread_id}", *notes)
    if message.status == "error":
        facts = {"thread_id": thread_id, "error": text}
        return Answer("\n".join([text, *lines]), facts, failed=True).result()
    if tool.name in DOCUMENTS:
        return _with_media(message, thread_id, lines) or Answer(text, None, lines).result()
    data: dict[str, JsonValue] = {"thread_id": thread_id}
    if isinstance(message.artifact, dict):
        data.update(message.artifact)
        if text.startswith("Note: "):  # a person edited the call; the artifact cannot know
            data["note"] = text.partition("\n")[0]
    else:
        data["result"] = text
    if notes:
        data["notes"] = [*notes]
    return Answer(text, data, lines).result()


def _with_media(
    message: ToolMessage, thread_id: str, lines: Sequence[str]
) -> CallToolResult | None:
    """Return a result with its images and audio, or None if it has no media.

    Videos, documents and large media become links: few clients can pass them to their model, and
    some would show the base64 text.
    """
    content = () if isinstance(message.content, str) else message.content
    media = [block for block in content if is_media(block)]
    if not media:
        return None
    shown = [block for one in media if (block := media_block(one)) is not None]
    if len(shown) < len(media):
        lines = (*lines, f"Its bytes are in the resource thread://{thread_id}/files/<path>.")
    result = Answer(message.text, None, tuple(lines)).result()
    result.content += shown
    return result
