"""The refusals of the real Messages API that a client's mistakes can cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.fake_anthropic.answers import sign

_TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
_PROPERTY = re.compile(r"^[a-zA-Z0-9_.-]{1,64}$")
_TOOL_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
_PARAMETERS = {
    "model", "max_tokens", "messages", "cache_control", "container", "inference_geo", "metadata",
    "output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "thinking",
    "tool_choice", "tools", "context_management", "mcp_servers",
}  # fmt: skip
_SAMPLING = ("temperature", "top_p", "top_k")
_BLOCK_KEYS = {
    "text": {"text", "citations"},
    "image": {"source"},
    "document": {"source", "title", "context", "citations"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
}
_MEDIA_TYPES = {
    "image": ("image/jpeg", "image/png", "image/gif", "image/webp"),
    "document": ("application/pdf",),
}
_SERVER_BLOCKS = re.compile(r"^(server_tool_use|[a-z_]+_tool_result|container_upload)$")
_MAX_TOKENS = 128_000
_UNFORCED = ("claude-fable-5-1", "claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_SCHEMA_KEYS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems"},
    "string": {"format", "pattern"},
    "integer": set[str](),
    "number": set[str](),
    "boolean": set[str](),
    "null": set[str](),
}
_COMMON_KEYS = {
    "type", "title", "description", "default", "enum", "const", "$ref", "$defs", "anyOf", "allOf",
}  # fmt: skip


class Refused(Exception):
    """The request is invalid; the message is that of the real API."""


def refuse_bad(body: Any) -> None:
    """Raise `Refused` if the API would answer a request with status 400."""
    if not isinstance(body, dict):
        raise Refused("The request body is not a JSON object.")
    for check in _CHECKS:
        check(body)


def _parameters(body: Mapping[str, Any]) -> None:
    for name in _SAMPLING:
        if name in body:
            raise Refused(f"{name}: this parameter is not supported by this API version")
    for name in body:
        if name not in _PARAMETERS:
            raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refused("model: Field required")
    bound = body.get("max_tokens")
    if bound is None:
        raise Refused("max_tokens: Field required")
    if not isinstance(bound, int) or isinstance(bound, bool) or bound < 1:
        raise Refused("max_tokens: Input should be a valid integer greater than or equal to 1")
    if bound > _MAX_TOKENS:
        raise Refused(f"max_tokens: {bound} > {_MAX_TOKENS}, which is the maximum allowed")


def _output_config(body: Mapping[str, Any]) -> None:
    config = body.get("output_config", {})
    if not isinstance(config, dict):
        raise Refused("output_config: Input should be an object")
    for key in config:
        if key not in ("effort", "format"):
            raise Refused(f"output_config.{key}: Extra inputs are not permitted")
    if config.get("effort") not in (None, *_EFFORTS):
        raise Refused("output_config.effort: Input should be 'low', 'medium', 'high', …")
    wanted = config.get("format")
    if wanted is None:
        return
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        raise Refused("output_config.format.type: Input should be 'json_schema'")
    for key in wanted:
        if key not in ("type", "schema"):
            raise Refused(f"output_config.format.{key}: Extra inputs are not permitted")
    if not isinstance(wanted.get("schema"), dict):
        raise Refused("output_config.format.schema: Field required")
    _schema(wanted["schema"], "output_config.format.schema")


def _schema(schema: Any, place: str) -> None:
    if not isinstance(schema, dict):
        raise Refused(f"{place}: Input should be an object")
    if not {"$ref", "anyOf", "allOf", "enum", "const", "type"} & set(schema):
        raise Refused(f"{place}: Schema type is required")
    kind = schema.get("type")
    for key in set(schema) - _COMMON_KEYS - _SCHEMA_KEYS.get(kind, set()):
        raise Refused(f"{place}: For '{kind}' type, property '{key}' is not supported")
    if kind == "object" and schema.get("additionalProperties") is not False:
        raise Refused(
            f"{place}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        )
    if schema.get("minItems", 0) > 1:
        raise Refused(f"{place}: For 'array' type, 'minItems' values other than 0 or 1 are not")
    for name, inner in _inner(schema):
        _schema(inner, f"{place}.{name}")


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in ("anyOf", "allOf"):
        yield from ((key, one) for one in schema.get(key, []))
    for key in ("properties", "$defs"):
        yield from ((f"{key}.{name}", one) for name, one in schema.get(key, {}).items())
    if schema.get("type") == "array":
        yield "items", schema.get("items")


def _forced(body: Mapping[str, Any]) -> None:
    if body.get("tool_choice", {}).get("type") not in ("any", "tool"):
        return
    if body["model"].startswith(_UNFORCED):
        raise Refused('tool_choice: type "tool" and "any" are not supported for this model.')
    if body.get("thinking", {"type": "disabled"}).get("type") != "disabled":
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")


def _thought(body: Mapping[str, Any]) -> None:
    if body.get("thinking", {}).get("type") != "enabled" or len(body["messages"]) < 2:
        return
    answer, newest = body["messages"][-2:]
    results = newest["content"] if isinstance(newest["content"], list) else []
    if not any(one.get("type") == "tool_result" for one in results):
        return
    found = answer["content"][0]["type"]
    if found not in ("thinking", "redacted_thinking"):
        raise Refused(
            f"messages.{len(body['messages']) - 2}.content.0.type: Expected `thinking` or "
            f"`redacted_thinking`, but found `{found}`. When `thinking` is enabled, a final "
            "`assistant` message must start with a thinking block."
        )


def _tools(body: Mapping[str, Any]) -> None:
    names: list[str] = []
    for place, tool in enumerate(body.get("tools", [])):
        name = tool.get("name", "")
        if not _TOOL_NAME.match(name):
            raise Refused(
                f"tools.{place}.custom.name: String should match pattern '{_TOOL_NAME.pattern}'"
            )
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.append(name)
        if tool.get("type", "custom") == "custom":
            schema = tool.get("input_schema")
            if not isinstance(schema, dict) or schema.get("type") != "object":
                raise Refused(f"tools.{place}.custom.input_schema.type: Input should be 'object'")
            _input_schema(schema, f"tools.{place}.custom.input_schema")
    choice = body.get("tool_choice")
    if choice is not None and not names:
        raise Refused("tool_choice: tool_choice may only be specified while providing tools")
    if choice is not None and choice.get("type") == "tool" and choice.get("name") not in names:
        raise Refused(f"Tool '{choice.get('name')}' not found in provided tools")


def _input_schema(schema: Mapping[str, Any], place: str) -> None:
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        raise Refused(
            f"{place}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        )
    for name in schema.get("properties", {}):
        if not _PROPERTY.match(name):
            raise Refused(
                f"{place}.properties: Property keys should match pattern '{_PROPERTY.pattern}'"
            )


def _deferred(body: Mapping[str, Any]) -> None:
    tools = body.get("tools", [])
    for place, tool in enumerate(tools):
        if tool.get("defer_loading") and "cache_control" in tool:
            raise Refused(
                f"tools.{place}: Tool '{tool['name']}' cannot have both defer_loading=true and "
                "cache_control set. Tools with defer_loading cannot use prompt caching."
            )
        if tool.get("defer_loading") and tool.get("type", "").startswith("tool_search_tool_"):
            raise Refused(f"tools.{place}: a tool search tool cannot be deferred")
    if tools and all(tool.get("defer_loading") for tool in tools):
        raise Refused("At least one tool must have defer_loading=false")
    names = [tool["name"] for tool in tools]
    for message in body.get("messages", []):
        for block in [] if isinstance(message["content"], str) else message["content"]:
            if block.get("type") != "tool_search_tool_result":
                continue
            for reference in block["content"].get("tool_references", []):
                if reference["tool_name"] not in names:
                    raise Refused(
                        f"Tool reference '{reference['tool_name']}' not found in available tools"
                    )


def _system(body: Mapping[str, Any]) -> None:
    system = body.get("system", [])
    for block in [] if isinstance(system, str) else system:
        if not str(block.get("text", "")).strip():
            raise Refused("system: text content blocks must be non-empty")


def _merged(messages: list[Any]) -> list[dict[str, Any]]:
    """Return the messages like the API: consecutive messages of one role are merged."""
    merged: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            raise Refused(f"messages.{place}.role: Input should be 'user' or 'assistant'")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            raise Refused(f"messages.{place}: all messages must have non-empty content")
        for index, block in enumerate(blocks):
            _block(block, f"messages.{place}.content.{index}", role)
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"].extend(blocks)
        else:
            merged.append({"role": role, "content": list(blocks)})
        last = blocks[-1]["type"]
        if role == "assistant" and last in ("thinking", "redacted_thinking"):
            raise Refused(
                f"messages.{place}: The final block in an assistant message cannot be `thinking`."
            )
    return merged


def _block(block: Mapping[str, Any], place: str, role: str) -> None:
    kind = str(block.get("type"))
    keys = _BLOCK_KEYS.get(kind)
    if keys is None:
        if role == "assistant" and _SERVER_BLOCKS.match(kind):
            return
        raise Refused(f"{place}: Input tag '{kind}' found using 'type' does not match any tag")
    extra = sorted(set(block) - keys - {"type", "cache_control"})
    if extra:
        raise Refused(f"{place}.{kind}.{extra[0]}: Extra inputs are not permitted")
    match kind:
        case "text":
            _text(block, place)
        case "document" | "image":
            _media(block, place, kind)
        case "thinking" | "redacted_thinking":
            _thinking(block, place, kind)
        case "tool_use":
            _tool_use(block, place, role)
        case "tool_result":
            _tool_result(block, place, role)


def _text(block: Mapping[str, Any], place: str) -> None:
    if not block.get("text"):
        raise Refused(f"{place}: text content blocks must be non-empty")
    if not block["text"].strip():
        raise Refused(f"{place}: text content blocks must contain non-whitespace text")


def _media(block: Mapping[str, Any], place: str, kind: str) -> None:
    source = block.get("source", {})
    if source.get("type") == "base64" and source.get("media_type") not in _MEDIA_TYPES[kind]:
        known = " or ".join(f"'{one}'" for one in _MEDIA_TYPES[kind])
        raise Refused(f"{place}.{kind}.source.base64.media_type: Input should be {known}")


def _thinking(block: Mapping[str, Any], place: str, kind: str) -> None:
    if "cache_control" in block:
        raise Refused(f"{place}.{kind}.cache_control: Extra inputs are not permitted")
    if kind == "redacted_thinking" and not block.get("data"):
        raise Refused(f"{place}.redacted_thinking.data: Field required")
    if kind == "thinking" and block.get("signature") != sign(block.get("thinking", "")):
        raise Refused(f"{place}: Invalid `signature` in `thinking` block")


def _tool_use(block: Mapping[str, Any], place: str, role: str) -> None:
    if role != "assistant":
        raise Refused(f"{place}: `tool_use` blocks can only be in `assistant` messages")
    if not _TOOL_ID.match(block.get("id", "")):
        raise Refused(f"{place}.tool_use.id: String should match pattern '{_TOOL_ID.pattern}'")
    if not _TOOL_NAME.match(block.get("name", "")):
        raise Refused(f"{place}.tool_use.name: String should match pattern '{_TOOL_NAME.pattern}'")
    if not isinstance(block.get("input"), dict):
        raise Refused(f"{place}.tool_use.input: Input should be a valid dictionary")


def _tool_result(block: Mapping[str, Any], place: str, role: str) -> None:
    if role != "user":
        raise Refused(f"{place}: `tool_result` blocks can only be in `user` messages")
    if not _TOOL_ID.match(block.get("tool_use_id", "")):
        raise Refused(
            f"{place}.tool_result.tool_use_id: String should match pattern '{_TOOL_ID.pattern}'"
        )
    content = block.get("content", [])
    kinds = set() if isinstance(content, str) else {one.get("type") for one in content}
    if block.get("is_error") and kinds - {"text"}:
        raise Refused(f'{place}.tool_result: all content must be type "text" if "is_error" is true')
    if block.get("is_error") and not content:
        raise Refused(f"{place}.tool_result: content cannot be empty if `is_error` is true")
    for index, inner in enumerate([] if isinstance(content, str) else content):
        if inner.get("type") not in ("text", "image", "document", "search_result"):
            raise Refused(f"{place}.tool_result.content.{index}: unexpected {inner.get('type')}")
        if inner["type"] == "text":
            _text(inner, f"{place}.tool_result.content.{index}")
        elif inner["type"] in _MEDIA_TYPES:
            _media(inner, f"{place}.tool_result.content.{index}", inner["type"])


def _messages(body: Mapping[str, Any]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages: at least one message is required")
    merged = _merged(messages)
    if merged[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    _pairs(merged)
    last = merged[-1]
    if last["role"] == "assistant" and not _SERVER_BLOCKS.match(last["content"][-1]["type"]):
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        )


def _pairs(merged: list[dict[str, Any]]) -> None:
    """Check that each call has its result at the start of the next message, and vice versa."""
    open_calls: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(merged):
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        leading = list(_leading_results(message["content"]))
        for result in results:
            if result not in open_calls:
                raise Refused(
                    f"messages.{place}.content.0: unexpected `tool_use_id` found in `tool_result` "
                    f"blocks: {result}. Each `tool_result` block must have a corresponding "
                    "`tool_use` block in the previous message."
                )
        if len(set(results)) != len(results):
            raise Refused(f"messages.{place}: each tool_use must have a single result")
        _no_open(open_calls, leading, place)
        open_calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        if len(set(open_calls)) != len(open_calls) or seen & set(open_calls):
            raise Refused(f"messages.{place}: `tool_use` ids must be unique")
        seen.update(open_calls)
    _no_open(open_calls, [], len(merged))


def _no_open(calls: list[str], results: list[str], place: int) -> None:
    missing = [call for call in calls if call not in results]
    if missing:
        raise Refused(
            f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks "
            f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
            "corresponding `tool_result` block in the next message."
        )


def _leading_results(blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if block["type"] != "tool_result":
            return
        yield block["tool_use_id"]


def _breakpoints(body: Mapping[str, Any]) -> None:
    system = body.get("system", [])
    blocks = [*body.get("tools", []), *([] if isinstance(system, str) else system)]
    for message in body["messages"]:
        blocks += [] if isinstance(message["content"], str) else message["content"]
    count = sum("cache_control" in block for block in blocks) + ("cache_control" in body)
    if count > 4:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {count}.")
    marks = [block["cache_control"] for block in blocks if "cache_control" in block]
    lives = [mark.get("ttl", "5m") for mark in marks]
    if lives != sorted(lives):  # "1h" sorts before "5m"
        raise Refused(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        )


_CHECKS = (
    _parameters, _output_config, _tools, _deferred, _forced, _system, _messages, _thought,
    _breakpoints,
)  # fmt: skip
