"""The tools that the suite calls, according to its scenarios."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
)

from deep_agent_mcp.server.mcp.requests import Context
from deep_agent_mcp.server.tools import FaceTool, TaskStarted, ToolReply

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5E"
    "rkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="

Work = Callable[[Context, CallToolRequestParams, dict[str, Any]], Awaitable[ToolReply]]


def text(value: str) -> TextContent:
    return TextContent(type="text", text=value)


def image() -> ImageContent:
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def resource(uri: str, mime: str, content: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime, text=content)
    return EmbeddedResource(type="resource", resource=contents)


def result(*blocks: ContentBlock, failed: bool = False) -> CallToolResult:
    return CallToolResult(content=list(blocks), is_error=failed)


def _always(*blocks: ContentBlock, failed: bool = False) -> Work:
    async def work(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
        return result(*blocks, failed=failed)

    return work


async def _progress(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, None)
        await anyio.sleep(0.05)
    return result(text("done"))


async def _logging(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await anyio.sleep(0.05)
    return result(text("done"))


async def _reconnecting(
    ctx: Context, params: CallToolRequestParams, args: dict[str, Any]
) -> ToolReply:
    """Close the call's stream, so that the client must reconnect to get the answer."""
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await anyio.sleep(0.1)
    return result(text("Reconnected."))


# --- asking over an open connection ---------------------------------------------------------


async def _sampling(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
    asked = SamplingMessage(role="user", content=text(args["prompt"]))
    said = await ctx.session.create_message(
        [asked], max_tokens=100, related_request_id=ctx.request_id
    )
    return result(text(f"LLM response: {getattr(said.content, 'text', '')}"))


def _elicits(message: str | None, schema: dict[str, Any], before: str) -> Work:
    async def work(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
        wanted = message or args["message"]
        said = await ctx.session.elicit_form(wanted, schema, ctx.request_id)
        content = json.dumps(said.content or {})
        return result(text(f"{before}: action={said.action}, content={content}"))

    return work


async def _missing(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this needs sampling", data)
    return result(text("the client has sampling"))


# --- asking by a result ---------------------------------------------------------------------


def form(message: str, **fields: str) -> ElicitRequest:
    properties = {name: {"type": kind} for name, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str) -> CreateMessageRequest:
    asked = SamplingMessage(role="user", content=text(prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[asked], max_tokens=50))


def _asks(state: str | None = None, **requests: Any) -> Work:
    """Ask for everything in one round, and return the responses."""

    async def work(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
        given = params.input_responses or {}
        if not requests.keys() <= given.keys():
            return InputRequiredResult(input_requests=requests, request_state=state)
        if state is not None and params.request_state != state:
            return result(text("the state is not ours"), failed=True)
        said = " ".join(_said(given[key]) for key in requests)
        return result(text(f"Hello, {said}! state-ok"))

    return work


def _said(response: Any) -> str:
    if isinstance(response, ElicitResult):
        return " ".join(map(str, (response.content or {}).values()))
    if isinstance(response, ListRootsResult):
        return " ".join(str(root.uri) for root in response.roots)
    return getattr(response.content, "text", "")


async def _rounds(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
    given = params.input_responses or {}
    if "step1" not in given and "step2" not in given:
        return InputRequiredResult(
            input_requests={"step1": form("Step 1: What is your name?", name="string")},
            request_state="round 1",
        )
    if params.request_state == "round 1":
        return InputRequiredResult(
            input_requests={"step2": form("Step 2: What is your favorite color?", color="string")},
            request_state="round 2",
        )
    return result(text("All steps are done."))


async def _capable(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
    capabilities = ctx.session.client_capabilities
    requests: dict[str, Any] = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["greeting"] = sample("Generate a greeting")
    if capabilities is not None and capabilities.elicitation is not None:
        requests["user_name"] = form("What is your name?", name="string")
    return InputRequiredResult(input_requests=requests, request_state="capabilities")


def escalating(drive: Callable[[str], Awaitable[str]]) -> Work:
    """Ask before the task starts; `drive` starts it for a name and returns its run."""

    async def work(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
        given = (params.input_responses or {}).get("user_name")
        if given is None:
            return InputRequiredResult(
                input_requests={"user_name": form("What is your name?", name="string")},
                request_state="asked",
            )
        return TaskStarted(await drive(_said(given)))

    return work


_NAMED = {"type": "string", "oneOf": [{"const": "value1", "title": "First Option"}]}
_ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [
            {"const": "value1", "title": "First Option"},
            {"const": "value2", "title": "Second Option"},
            {"const": "value3", "title": "Third Option"},
        ],
    },
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {
        "type": "array",
        "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
    },
    "titledMulti": {
        "type": "array",
        "items": {
            "anyOf": [
                {"const": "value1", "title": "First Choice"},
                {"const": "value2", "title": "Second Choice"},
                {"const": "value3", "title": "Third Choice"},
            ]
        },
    },
}
_DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {
        "type": "string",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "default": True},
}
_PERSON = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_ASK_NAME = {"user_name": form("What is your name?", name="string")}
_CONFIRM = {"confirm": form("Please confirm", ok="boolean")}
_EVERYTHING = {
    **_ASK_NAME,
    "greeting": sample("Generate a greeting"),
    "client_roots": ListRootsRequest(),
}

_PLAIN: dict[str, Work] = {
    "test_simple_text": _always(text("This is a simple text response for testing.")),
    "test_image_content": _always(image()),
    "test_audio_content": _always(AudioContent(type="audio", data=WAV, mime_type="audio/wav")),
    "test_embedded_resource": _always(
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": _always(
        text("Multiple content types test:"),
        image(),
        resource(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ),
    "test_error_handling": _always(
        text("This tool intentionally returns an error for testing"), failed=True
    ),
    "test_tool_with_progress": _progress,
    "test_tool_with_logging": _logging,
    "test_reconnection": _reconnecting,
    "test_missing_capability": _missing,
    "test_elicitation_sep1034_defaults": _elicits(
        "Please review", _object(_DEFAULTS), "Elicitation completed"
    ),
    "test_elicitation_sep1330_enums": _elicits(
        "Please choose", _object(_ENUMS), "Elicitation completed"
    ),
    "test_input_required_result_elicitation": _asks(**_ASK_NAME),
    "test_input_required_result_sampling": _asks(
        capital_question=sample("What is the capital of France?")
    ),
    "test_input_required_result_list_roots": _asks(client_roots=ListRootsRequest()),
    "test_input_required_result_request_state": _asks("confirming", **_CONFIRM),
    "test_input_required_result_tampered_state": _asks("untouched", **_CONFIRM),
    "test_input_required_result_multiple_inputs": _asks("several", **_EVERYTHING),
    "test_input_required_result_multi_round": _rounds,
    "test_input_required_result_capabilities": _capable,
}

_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def fixture_tools() -> list[FaceTool]:
    """Return the tools that only need the server's face."""
    made = [_tool(name, work, _object({})) for name, work in _PLAIN.items()]
    prompt = _object({"prompt": {"type": "string"}}, "prompt")
    made.append(_tool("test_sampling", _sampling, prompt))
    message = _object({"message": {"type": "string"}}, "message")
    person = _elicits(None, _object(_PERSON, "username", "email"), "User response")
    made.append(_tool("test_elicitation", person, message))
    accepted = _always(text("The schema was taken."))
    made.append(_tool("json_schema_2020_12_tool", accepted, _SCHEMA_2020_12))
    region = {"type": "string", "x-mcp-header": "Region"}
    made.append(_tool("test_custom_header", accepted, _object({"region": region})))
    return made


def _tool(name: str, work: Work, schema: dict[str, Any]) -> FaceTool:
    return FaceTool(Tool(name=name, description=f"Fixture {name}.", input_schema=schema), work)


def binary(uri: str) -> BlobResourceContents:
    return BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
