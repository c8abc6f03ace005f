"""Task options: what a caller chooses for one run, checked before anything is started."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, cast

import anyio.to_thread
from mcp.types import Tool
from pydantic import BaseModel, ConfigDict, Field

from ...harness.errors import HarnessError
from ...harness.loop.run.choices import RunChoices
from ...harness.models.registry import DEFAULT_MODEL
from ...harness.subagents.definitions import AnySubAgent, CompiledSubAgent
from ..mcp.requests import Services
from ..settings.settings import Settings

__all__ = ["TaskLimits", "checked_choices", "require_allowed", "with_options"]


class TaskLimits(BaseModel):
    """Bounds of one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int | None = Field(default=None, ge=1)
    cost: float | None = Field(default=None, gt=0)
    seconds: float | None = Field(default=None, gt=0)


def with_options(tool: Tool, settings: Settings) -> Tool:
    """Return the definition of `task` with the models that may be chosen; of others as it is."""
    if tool.name != "task":
        return tool
    properties = dict(cast("dict[str, Any]", tool.input_schema["properties"]))
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
    """Return what is chosen, None for nothing, and what the caller is told about it.

    Args:
        services: Those of all requests.
        subagent: Who gets the goal; None for the main agent.
        output_schema: What the answer shall be.
        model: A model's name; empty for the agent's own.
        effort: How much it shall think; empty for its own.
        limits: Bounds of the run.

    Raises:
        HarnessError: It is not allowed, or cannot be; nothing was started.
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
            f"Nothing was started: {subagent.name} is a function, which takes a goal and nothing "
            "else. Leave out output_schema, model, effort and limits."
        )
    choices = require_allowed(choices, settings, subagent)
    if output_schema is not None:
        kept = await anyio.to_thread.run_sync(_schema, services, output_schema)
        choices = RunChoices(kept, *_rest(choices))
    return choices, _cut(bounds, settings)


def _rest(choices: RunChoices) -> tuple[Any, ...]:
    return choices.model, choices.effort, choices.tokens, choices.cost, choices.seconds


def _schema(services: Services, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a checked schema; imports what is slow to import, and blocks."""
    from ...harness.structured_output.given_schemas import InvalidSchema, checked_schema

    try:
        return checked_schema(schema, services.places().tools)
    except InvalidSchema as error:
        raise HarnessError(f"Nothing was started: output_schema is refused: {error}.") from error


def require_allowed(
    choices: RunChoices, settings: Settings, subagent: AnySubAgent | None = None
) -> RunChoices:
    """Return choices with the model's full name, if the operator allows them.

    Raises:
        HarnessError: They do not.
    """
    if not choices.model and not choices.effort:
        return choices
    allowed = settings.task_models
    if not allowed:
        raise HarnessError(
            "Nothing was started: this server lets callers choose neither model nor effort. Leave "
            "them out; the operator allows models with --task-model GLOB."
        )
    from ...harness.models.effort import effort_settings
    from ...harness.models.registry import full_name

    model = full_name(choices.model) if choices.model else ""
    if model and not any(fnmatchcase(model, glob) for glob in allowed):
        raise HarnessError(
            f"Nothing was started: the model {model} is not among those that callers may choose: "
            f"{', '.join(allowed)}."
        )
    effort_settings(model or _own_model(settings, subagent), choices.effort)
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
    """Return a note for each bound that is wider than the operator's, which holds then."""
    notes: list[str] = []
    for name in TaskLimits.model_fields:
        wanted = cast("float | None", getattr(asked, name))
        given = cast("float | None", getattr(settings.limits, name))
        if wanted is not None and given is not None and wanted > given:
            notes.append(f"limits.{name} is {given:,g}, the server's own, not {wanted:,g}.")
    return notes
