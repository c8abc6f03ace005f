"""A request as the library's parameters: tools, the system prompt, and a schema for the answer."""

# The library is an extra: its types are checked where it is installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import NATIVE_TOOL_TYPES, AbstractNativeTool
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from ...errors import ModelError
from ...tools.spec import ToolSpec
from ..base import ChatRequest, PromptSection
from ..tool_schema import taken_and_told
from ..wire import clean_text
from .naming import ToolNames
from .vendors import Vendor

__all__ = ["names_of", "parameters_of"]


def names_of(request: ChatRequest) -> ToolNames:
    """Return the names of a request's tools."""
    return ToolNames(tool.name for tool in request.tools if isinstance(tool, ToolSpec))


def parameters_of(request: ChatRequest, vendor: Vendor, names: ToolNames) -> ModelRequestParameters:
    """Return what a vendor is told besides the messages.

    Args:
        request: The call.
        vendor: Whose model is asked.
        names: The names of the request's tools.

    Raises:
        ModelError: A provider-side tool is one that the library does not know.
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
    schema, rest = taken_and_told({"type": "object", **tool.parameters})
    schema.setdefault("properties", {})
    said = [one for one in (tool.description, rest) if one.strip()]
    # Not strict: that changes what arguments mean, and they are checked where the tool runs.
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
        f"{vendor.name} has no tool of its own called {kind!r} here. Nothing was sent. Known: "
        f"{', '.join(sorted(NATIVE_TOOL_TYPES))}.",
        kind="invalid_request",
    )


def _instructions(system: Sequence[PromptSection]) -> list[InstructionPart]:
    """Return the sections; those behind the last cache mark change from call to call."""
    marks = [place for place, section in enumerate(system) if section.cache]
    stable = marks[-1] + 1 if marks else len(system)
    return [
        InstructionPart(clean_text(section.text), dynamic=place >= stable)
        for place, section in enumerate(system)
        if section.text.strip()
    ]
