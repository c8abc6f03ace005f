"""Conversion of a request to the library's parameters: tools, prompt, output schema and settings.

Settings of another vendor's API are left out, so that an agent's model can be replaced without
changes to its middleware. Unknown settings are sent unchanged; the vendor accepts or refuses them.
"""

# The library is an optional extra, so its types may be missing.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_type_hints

from pydantic import JsonValue
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import NATIVE_TOOL_TYPES, AbstractNativeTool
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ..._internal import clean_text
from ...errors import ModelError
from ...tools.schemas import ToolSpec
from ..base import ChatRequest, PromptSection
from ..settings import EFFORTS
from ..wire import split_schema
from . import Vendor
from .messages import ToolNames

__all__ = ["names_of", "parameters_of", "settings_of"]


def names_of(request: ChatRequest) -> ToolNames:
    """Return the names of a request's tools."""
    return ToolNames(tool.name for tool in request.tools if isinstance(tool, ToolSpec))


def parameters_of(request: ChatRequest, vendor: Vendor, names: ToolNames) -> ModelRequestParameters:
    """Return a request's tools, system prompt and output schema.

    Args:
        request: The call.
        vendor: The model's vendor.
        names: The names of the request's tools.

    Raises:
        ModelError: The library does not know a provider-side tool.
    """
    output = None
    if request.output_schema is not None:
        output = OutputObjectDefinition(dict(request.output_schema), name="answer", strict=True)
    return ModelRequestParameters(
        function_tools=[_tool(tool, names) for tool in request.tools if isinstance(tool, ToolSpec)],
        native_tools=[
            _native(tool, vendor) for tool in request.tools if not isinstance(tool, ToolSpec)
        ],
        output_mode="text" if output is None else "native",
        output_object=output,
        allow_text_output=True,
        instruction_parts=_instructions(request.system),
    )


def _tool(tool: ToolSpec, names: ToolNames) -> ToolDefinition:
    schema, rest = split_schema({"type": "object", **tool.parameters})
    schema.setdefault("properties", {})
    said = [one for one in (tool.description, rest) if one.strip()]
    # Not strict: that would change the schema, and arguments are validated when the tool runs.
    return ToolDefinition(
        name=names.wire(tool.name),
        parameters_json_schema=schema,
        description=clean_text("\n\n".join(said)) or None,
        strict=False,
    )


def _native(tool: Mapping[str, JsonValue], vendor: Vendor) -> AbstractNativeTool:
    kind, rest = str(tool.get("type")), {key: tool[key] for key in tool if key != "type"}
    make: Any = NATIVE_TOOL_TYPES.get(kind)
    try:
        if make is not None:
            return make(**rest)
    except TypeError as error:
        raise ModelError(
            f"The tool {kind!r} of {vendor.name} is not described as it takes it: {error}. Nothing "
            "was sent.",
            kind="invalid_request",
        ) from error
    raise ModelError(
        f"{vendor.name} has no tool called {kind!r} here. Nothing was sent. Known: "
        f"{', '.join(sorted(NATIVE_TOOL_TYPES))}.",
        kind="invalid_request",
    )


def _instructions(system: Sequence[PromptSection]) -> list[InstructionPart]:
    """Return the sections; those after the last cache mark are dynamic."""
    marks = [place for place, section in enumerate(system) if section.cache]
    stable = marks[-1] + 1 if marks else len(system)
    return [
        InstructionPart(clean_text(section.text), dynamic=place >= stable)
        for place, section in enumerate(system)
        if section.text.strip()
    ]


_KNOWN = frozenset(get_type_hints(ModelSettings))
_DIALECTS = ("openai_", "google_", "bedrock_", "mistral_", "groq_", "openrouter_", "cerebras_")
_FOREIGN = frozenset(
    {"betas", "cache_control", "cache_ttl", "context_management", "deferred_tools"}
    | {"output_config", "thinking"}  # converted by `_thinking`
)
"""Settings that only the Messages API supports in this form."""

_OPEN_BODIES = ("chat", "responses", "groq")
"""Protocols whose SDK accepts arbitrary fields."""


def settings_of(
    request: ChatRequest,
    parameters: Mapping[str, Any],
    vendor: Vendor,
    names: ToolNames,
    retries: int,
) -> ModelSettings:
    """Return the settings of a call.

    Args:
        request: The call; its settings take precedence over the model's.
        parameters: The model's own settings.
        vendor: The model's vendor.
        names: The names of the request's tools.
        retries: How often the SDK may retry the call.

    Raises:
        ModelError: Neither the library nor the vendor's SDK accepts a setting.
    """
    wanted = {**parameters, **request.settings}
    settings = _of_the_call(request, vendor, names, retries)
    settings |= _thinking(parameters) | _thinking(request.settings)
    if "cache" in settings and wanted.get("cache_ttl") == "1h":
        settings["cache"] = "1h"
    extra: dict[str, Any] = {}
    for key, value in wanted.items():
        if value is None or key in _FOREIGN:
            continue
        if key in _KNOWN or key.startswith(_DIALECTS):
            settings[key] = value
        else:
            extra[key] = value
    if extra and vendor.api not in _OPEN_BODIES:
        raise ModelError(
            f"{vendor.name} has no setting {', '.join(map(repr, sorted(extra)))}. Nothing was "
            f"sent. Available settings: {', '.join(sorted(_KNOWN))}, and all that begin with its "
            "name.",
            kind="invalid_request",
        )
    if extra:
        body: Any = settings.get("extra_body")
        settings["extra_body"] = {**extra, **cast("dict[str, Any]", body or {})}
    return cast(ModelSettings, settings)


def _of_the_call(
    request: ChatRequest, vendor: Vendor, names: ToolNames, retries: int
) -> dict[str, Any]:
    """Return settings that follow from other fields of the call, such as its tool choice."""
    settings: dict[str, Any] = {}
    if vendor.api != "bedrock":  # Bedrock's SDK only accepts it when a client is created
        settings["max_retries"] = retries
    if vendor.api == "responses":  # our journal stores the transcript; reasoning is encrypted
        settings["openai_store"] = False
    if request.cache_messages or any(section.cache for section in request.system):
        settings["cache"] = True
    if request.tools and request.tool_choice != "auto":
        settings["tool_choice"] = _choice(request.tool_choice, names)
    return settings


def _choice(choice: str, names: ToolNames) -> Any:
    return {"none": "none", "any": "required"}.get(choice) or [names.wire(choice)]


def _thinking(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the library's thinking setting, also from the format of the Messages API.

    An effort says more than that the model thinks, and less than that it does not.
    """
    effort, thinking = _level(given.get("output_config")), _level(given.get("thinking"))
    level = thinking if thinking is False or effort is None else effort
    return {} if level is None else {"thinking": level}


def _level(value: Any) -> Any:
    """Return whether or how much to think; None if the value does not say."""
    if not isinstance(value, Mapping):
        return value
    data = cast("Mapping[str, Any]", value)
    if "effort" in data:
        return data["effort"] if data["effort"] in EFFORTS else None
    return data["type"] not in ("between_tools", "disabled") if "type" in data else None
