"""Options of `task` for one run, checked before the run starts.

Files and images for a goal are handled here, too; they are given as content or as resource links.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, cast
from urllib.parse import unquote

import anyio.to_thread
from mcp.shared.exceptions import MCPError
from mcp.types import ReadResourceRequestParams, TextResourceContents, Tool
from pydantic import BaseModel, ConfigDict, Field

from ...harness._internal.concurrency import work_apart
from ...harness.errors import HarnessError
from ...harness.loop.run.choices import RunChoices
from ...harness.messages.message import new_id
from ...harness.models.registry import DEFAULT_MODEL
from ...harness.subagents.definitions import AnySubAgent, CompiledSubAgent
from ..mcp.requests import MAX_FILE_BYTES, Context, Services
from ..mcp.resources import Resources
from ..runs.goals import TaskInput, inputs_directory
from ..settings.definition import definition_of
from ..settings.settings import Settings

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "TaskFile",
    "TaskLimits",
    "checked_choices",
    "require_allowed",
    "task_inputs",
    "with_options",
    "with_subagents",
]


class TaskLimits(BaseModel):
    """Limits of one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int | None = Field(default=None, ge=1)
    cost: float | None = Field(default=None, gt=0)
    seconds: float | None = Field(default=None, gt=0)


def with_subagents(tool: Tool, subagents: str, *, main: bool = True) -> Tool:
    """Add the list of subagents to the definition of `task`; other tools stay unchanged.

    Args:
        tool: A definition.
        subagents: One line per subagent; empty if there are none.
        main: Whether the caller may give goals to the main agent.
    """
    if tool.name != "task" or (main and not subagents):
        return tool
    properties = cast("dict[str, Any]", tool.input_schema["properties"])
    agent = properties["agent"]
    about = agent["description"] if main else "Who gets the goal."
    told = {**agent, "description": f"{about} There are:\n{subagents or '(none at present)'}"}
    schema = {**tool.input_schema, "properties": {**properties, "agent": told}}
    return tool.model_copy(update={"input_schema": schema})


def with_options(tool: Tool, settings: Settings) -> Tool:
    """Add the operator's texts to the definition of `task`; other tools stay unchanged.

    The texts name the allowed models and the purpose of the main agent.
    """
    if tool.name != "task":
        return tool
    properties = dict(cast("dict[str, Any]", tool.input_schema["properties"]))
    described = definition_of(settings)
    if described is not None and described.file.agent.description:
        named = f"{properties['agent']['description']} About it: {described.file.agent.description}"
        properties["agent"] = {**properties["agent"], "description": named}
    if settings.task_models:
        named = f"{properties['model']['description']} Allowed: {', '.join(settings.task_models)}."
        properties["model"] = {**properties["model"], "description": named}
    else:
        del properties["model"], properties["effort"]
    return tool.model_copy(update={"input_schema": {**tool.input_schema, "properties": properties}})


async def checked_choices(
    services: Services,
    subagent: AnySubAgent | None,
    *,
    output_schema: dict[str, Any] | None,
    model: str,
    effort: str,
    limits: TaskLimits | None,
) -> tuple[RunChoices | None, list[str]]:
    """Return the checked options, or None if there are none, and notes for the caller.

    Args:
        services: The server's services.
        subagent: Subagent for the goal; None for the main agent.
        output_schema: JSON schema of the answer.
        model: Name of a model; empty for the agent's own.
        effort: Thinking effort of the model; empty for the agent's own.
        limits: Limits of the run.

    Raises:
        HarnessError: An option is not allowed or not possible; nothing was started.
    """
    settings = services.settings
    bounds = limits or TaskLimits()
    choices = RunChoices(
        output_schema,
        model.strip(),
        effort,
        bounds.tokens,
        bounds.cost,
        bounds.seconds,
    )
    if choices == RunChoices():
        return None, []
    if isinstance(subagent, CompiledSubAgent) and not subagent.is_agent:
        raise HarnessError(
            f"Nothing was started: {subagent.name} is a function, which takes only a goal. "
            "Leave out output_schema, model, effort and limits."
        )
    choices = require_allowed(choices, settings, subagent)
    if output_schema is not None:
        kept = await anyio.to_thread.run_sync(_schema, services, output_schema)
        choices = RunChoices(kept, *_rest(choices))
    return choices, _cut(bounds, settings)


def _rest(choices: RunChoices) -> tuple[Any, ...]:
    return choices.model, choices.effort, choices.tokens, choices.cost, choices.seconds


def _schema(services: Services, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a checked schema. Blocks, because it imports slow modules."""
    from ...harness.structured_output.given_schemas import InvalidSchema, checked_schema

    try:
        return checked_schema(schema, services.places().tools)
    except InvalidSchema as error:
        raise HarnessError(f"Nothing was started: output_schema is refused: {error}.") from error


def require_allowed(
    choices: RunChoices, settings: Settings, subagent: AnySubAgent | None = None
) -> RunChoices:
    """Return the options with the model's full name, if the operator allows them.

    Raises:
        HarnessError: The operator does not allow them.
    """
    if not choices.model and not choices.effort:
        return choices
    allowed = settings.task_models
    if not allowed:
        raise HarnessError(
            "Nothing was started: this server does not let callers choose model or effort. Leave "
            "them out, or ask the operator to allow models with --task-model GLOB."
        )
    from ...harness.models.registry import full_name
    from ...harness.models.settings import UnknownEffort, effort_settings

    model = full_name(choices.model) if choices.model else ""
    if model and not any(fnmatchcase(model, glob) for glob in allowed):
        raise HarnessError(
            f"Nothing was started: the model {model} is not among those that callers may choose: "
            f"{', '.join(allowed)}."
        )
    try:
        effort_settings(model or _own_model(settings, subagent), choices.effort)
    except UnknownEffort as error:
        raise HarnessError(f"Nothing was started: {error}") from error
    return RunChoices(choices.output_schema, model, *_rest(choices)[1:])


def _own_model(settings: Settings, subagent: AnySubAgent | None) -> str:
    own = getattr(subagent, "model", None)
    if own is not None and not isinstance(own, str):
        return str(own.name)
    named = own or settings.model or DEFAULT_MODEL
    if named.partition(":")[0] == "sampling":
        return named
    from ...harness.models.registry import full_name

    return full_name(named)


def _cut(asked: TaskLimits, settings: Settings) -> list[str]:
    """Return a note for each limit above the operator's; the operator's limit applies instead."""
    notes: list[str] = []
    for name in TaskLimits.model_fields:
        wanted = cast("float | None", getattr(asked, name))
        given = cast("float | None", getattr(settings.limits, name))
        if wanted is not None and given is not None and wanted > given:
            notes.append(f"limits.{name} is {given:,g}, the server's limit, not {wanted:,g}.")
    return notes


MOST_FILES = 32
"""Maximum number of files for one goal."""

MOST_BYTES = MAX_FILE_BYTES
"""Bytes of all of them together: they are written in one step."""

_SCHEMES = ("thread://", "skill://")
_NAME_CHARS = 100
_ODD = re.compile(r"[^\w.\- ()+@]+")


class TaskFile(BaseModel):
    """One file: its `text`, its `data` in base64, or the `uri` of a resource of this server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    text: str | None = None
    data: str | None = None
    uri: str | None = None


async def task_inputs(
    ctx: Context, services: Services, files: Sequence[TaskFile], key: str
) -> tuple[TaskInput, ...]:
    """Return the files with their future paths.

    Args:
        ctx: The request.
        services: The server's services.
        files: The files of the goal.
        key: Idempotency key of the call: a repeated call gets the same paths.

    Raises:
        HarnessError: A file is invalid or too large, or there are too many; nothing was started.
    """
    if len(files) > MOST_FILES:
        raise _refused(f"{len(files)} files were given; at most {MOST_FILES} are allowed")
    parts = services.places.of().parts
    token = blake2b(key.encode(), digest_size=4).hexdigest() if key else new_id("in")[-8:]
    directory = f"{inputs_directory(parts.settings, parts.backend)}/{token}"
    found: list[TaskInput] = []
    names: set[str] = set()
    total = 0
    for number, one in enumerate(files, start=1):
        data = await _data(ctx, services, one, number)
        total += len(data)
        if total > MOST_BYTES:
            raise _refused(
                f"file {number} has {len(data):,} bytes, {total:,} with those before it; at most "
                f"{MOST_BYTES:,} are allowed in all"
            )
        name = _free(_name(one, number), names)
        names.add(name.lower())
        found.append(TaskInput(f"{directory}/{name}", data))
    return tuple(found)


async def _data(ctx: Context, services: Services, one: TaskFile, number: int) -> bytes:
    given = [part for part in (one.text, one.data, one.uri) if part is not None]
    if len(given) != 1:
        raise _refused(
            f"file {number} has {len(given)} of text, data and uri; set exactly one of them"
        )
    if one.text is not None:
        try:
            return one.text.encode()
        except UnicodeEncodeError:
            raise _refused(
                f"the text of file {number} is not valid Unicode: it has half of a surrogate pair"
            ) from None
    if one.data is not None:
        coded = one.data
        try:
            return await work_apart(lambda: _decoded(coded), len(coded))
        except (binascii.Error, ValueError) as error:
            raise _refused(f"the data of file {number} is not base64 ({error})") from error
    return await _linked(ctx, services, one.uri or "", number)


def _decoded(coded: str) -> bytes:
    """Decode base64; line breaks are ignored.

    Raises:
        ValueError: The text is not valid base64.
    """
    try:
        return base64.b64decode(coded, validate=True)
    except binascii.Error:
        return base64.b64decode("".join(coded.split()), validate=True)


async def _linked(ctx: Context, services: Services, uri: str, number: int) -> bytes:
    if not uri.startswith(_SCHEMES):
        raise _refused(
            f"the uri of file {number} is {uri[:200]!r}; this server reads its own resources only, "
            f"which begin with {' or '.join(_SCHEMES)}. Send the content as text or data"
        )
    try:
        result = await Resources(services).read(ctx, ReadResourceRequestParams(uri=uri))
    except MCPError as error:
        raise _refused(f"file {number}: {error.error.message.rstrip('.')}") from error
    (content,) = result.contents
    if isinstance(content, TextResourceContents):
        return content.text.encode()
    blob = content.blob
    return await work_apart(lambda: base64.b64decode(blob), len(blob))


def _name(one: TaskFile, number: int) -> str:
    """Return a file's name without directories and characters that are unsafe in paths."""
    said = one.name or unquote((one.uri or "").partition("?")[0])
    last = said.replace("\\", "/").rstrip("/").rpartition("/")[2]
    name = _ODD.sub("_", last).strip(" .")
    return name[-_NAME_CHARS:].lstrip(" .") or f"file-{number}"


def _free(name: str, taken: set[str]) -> str:
    stem, dot, suffix = name.rpartition(".")
    stem, ending = (stem, f".{suffix}") if dot and stem else (name, "")
    found, number = name, 2
    while found.lower() in taken:
        found, number = f"{stem}-{number}{ending}", number + 1
    return found


def _refused(why: str) -> HarnessError:
    return HarnessError(f"Nothing was started: {why}.")
