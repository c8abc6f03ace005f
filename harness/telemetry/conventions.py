"""Conventions of GenAI telemetry: names of attributes, metrics, and messages as JSON text.

The names are from OpenTelemetry's GenAI conventions, followed by our own. The conventions are in
development at https://github.com/open-telemetry/semantic-conventions-genai.

Attributes of metrics have few different values (models, tools, agents, statuses), and never ids.
Messages are only recorded on request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.metrics import Histogram, Meter
from pydantic import JsonValue
from pydantic_core import to_json

from ..loop.run.context import current_agent
from ..messages.message import (
    AIMessage,
    AnswerBlock,
    Content,
    HumanMessage,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    Usage,
)
from ..models.base import PromptSection
from ..redaction.values import clean_json

if TYPE_CHECKING:
    from ..redaction.rules import Redactor

__all__ = [
    "Attributes",
    "Metrics",
    "answer_json",
    "call_json",
    "clean_text",
    "messages_json",
    "result_json",
    "system_json",
]


OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOKEN_TYPE: Final = "gen_ai.token.type"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
SYSTEM: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ERROR: Final = "error.type"

TOKEN_USAGE: Final = "gen_ai.client.token.usage"
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK_DURATION: Final = "gen_ai.client.operation.time_to_first_chunk"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"

RUN: Final = "deep_agent.run.id"
RUN_KIND: Final = "deep_agent.run.kind"
RUN_STATUS: Final = "deep_agent.run.status"
RUN_ATTEMPT: Final = "deep_agent.run.attempt"
NAMESPACE: Final = "deep_agent.namespace"
AGENT_PATH: Final = "deep_agent.agent.path"
CHECKPOINT: Final = "deep_agent.checkpoint.id"
CHECKPOINT_STEP: Final = "deep_agent.checkpoint.step"
CHECKPOINT_AUTHOR: Final = "deep_agent.checkpoint.author"
COMMIT_SYNCED: Final = "deep_agent.commit.synced"
INTERNAL: Final = "deep_agent.internal"
CACHED: Final = "deep_agent.cached"
TOOL_OUTCOME: Final = "deep_agent.tool.outcome"
CANCELLED: Final = "deep_agent.cancelled"
DECISION: Final = "deep_agent.approval.decision"
APPROVAL_SECONDS: Final = "deep_agent.approval.wait"

RUNS_STARTED: Final = "deep_agent.runs.started"
RUNS_ENDED: Final = "deep_agent.runs.ended"
RUNS_ACTIVE: Final = "deep_agent.runs.active"
TOOL_CALLS: Final = "deep_agent.tool.calls"
COMMIT_DURATION: Final = "deep_agent.commit.duration"
APPROVAL_DURATION: Final = "deep_agent.approval.duration"


Attributes = dict[str, str | bool]

_TOKENS = [float(4**power) for power in range(14)]
_OPERATION_SECONDS = [0.01 * 2**power for power in range(14)]
"""Histogram buckets that the GenAI conventions recommend, for operations and for tokens."""

_NAMES = 200
"""Maximum number of model names with separate counts; clients can send any number of names."""

_OTHER = "_OTHER"

_AGENT_SECONDS = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0]
_COMMIT_SECONDS = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0]
_APPROVAL_SECONDS = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0]


class Metrics:
    """All metric instruments.

    Attributes:
        operations: Duration of model calls, in seconds.
        first_chunks: Seconds from a model call to the first piece of its answer.
        agents: Duration of runs (from start or resume to pause or end) and of subagents.
        tools: Duration of tool calls, in seconds.
        commits: Duration of commits to the journal, in seconds.
        approvals: Seconds from a question to its answer.
        tool_calls: Number of tool calls, by outcome.
        started: Number of started or resumed runs.
        ended: Number of paused or ended runs, by status.
        active: Number of running runs.
    """

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, description: str, buckets: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                name, "s", description, explicit_bucket_boundaries_advisory=buckets
            )

        self._tokens = meter.create_histogram(
            TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.operations = seconds(
            OPERATION_DURATION, "GenAI operation duration.", _OPERATION_SECONDS
        )
        self.first_chunks = seconds(
            FIRST_CHUNK_DURATION, "Time to receive the first chunk.", _OPERATION_SECONDS
        )
        self.agents = seconds(AGENT_DURATION, "Duration of agent runs.", _AGENT_SECONDS)
        self.tools = seconds(TOOL_DURATION, "Duration of tool calls.", _OPERATION_SECONDS)
        self.commits = seconds(
            COMMIT_DURATION, "Duration of commits to the journal.", _COMMIT_SECONDS
        )
        self.approvals = seconds(
            APPROVAL_DURATION, "Time from a question to its answer.", _APPROVAL_SECONDS
        )
        self._names: set[str] = set()
        self.tool_calls = meter.create_counter(TOOL_CALLS, "{call}", "Tool calls.")
        self.started = meter.create_counter(
            RUNS_STARTED, "{run}", "Runs that began or were resumed."
        )
        self.ended = meter.create_counter(RUNS_ENDED, "{run}", "Runs that paused or ended.")
        self.active = meter.create_up_down_counter(RUNS_ACTIVE, "{run}", "Runs at work.")

    def few(self, name: str) -> str:
        """Return an external name, or a common replacement if there are too many names."""
        if name not in self._names:
            if len(self._names) >= _NAMES:
                return _OTHER
            self._names.add(name)
        return name

    def count_tokens(self, usage: Usage, attributes: Attributes) -> None:
        """Record the tokens of one model call."""
        given = {**attributes, TOKEN_TYPE: "input"}
        self._tokens.record(usage.total - usage.output_tokens, given)
        self._tokens.record(usage.output_tokens, {**attributes, TOKEN_TYPE: "output"})


_TEXT = 16_384
"""Maximum characters of one text, such as a tool's result."""

_MOST = 131_072
"""Maximum characters of one attribute; collectors refuse larger ones."""

_Part = dict[str, JsonValue]


def system_json(sections: Sequence[PromptSection]) -> str:
    """Return the system prompt as JSON text."""
    return _json([_text(one.text) for one in sections])


def messages_json(messages: Sequence[Message]) -> str:
    """Return a model's input messages as JSON text. Of media only the type is included.

    If a conversation is too long, only its newest part is returned.
    """
    shown: list[JsonValue] = []
    room = _MOST
    for number, one in enumerate(reversed(messages)):
        data = _bounded(_clean(_message(one)))
        room -= len(_encoded(data))
        if room < 0 and shown:
            left_out = _text(f"({len(messages) - number} earlier messages are left out)")
            shown.append({"role": "system", "parts": [left_out]})
            break
        shown.append(data)
    return _encoded(shown[::-1])


def answer_json(answer: AIMessage) -> str:
    """Return a model's answer as JSON text."""
    parts: JsonValue = [_answered(block) for block in answer.content]
    reason = answer.stop_reason or "stop"
    return _json([{"role": "assistant", "parts": parts, "finish_reason": reason}])


def call_json(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text."""
    return _json(call.args)


def result_json(message: ToolMessage) -> str:
    """Return the result of a call as JSON text."""
    return _json(_result(message.content))


def clean_text(text: str) -> str:
    """Return a text for export: redacted, and without lone surrogates."""
    redactor = _redactor()
    text = text if redactor is None else redactor(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _message(message: Message) -> JsonValue:
    match message:
        case HumanMessage():
            return {"role": "user", "parts": _parts(message.content)}
        case AIMessage():
            return {"role": "assistant", "parts": [_answered(one) for one in message.content]}
        case ToolMessage():
            result: _Part = {"type": "tool_call_response", "id": message.tool_call_id}
            result["response"] = _result(message.content)
            return {"role": "tool", "parts": [result]}


def _answered(block: AnswerBlock) -> JsonValue:
    match block:
        case TextBlock(text):
            return _text(text)
        case ThinkingBlock(thinking):
            return {"type": "reasoning", "content": thinking}
        case ToolCall(call_id, name, args, invalid):
            given: JsonValue = args if invalid is None else invalid
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": given}
        case RedactedThinkingBlock():
            return {"type": block.type}
        case _:
            return {"type": block.type, "provider": block.provider}


def _parts(content: Content) -> JsonValue:
    if isinstance(content, str):
        return [_text(content)]
    parts: list[JsonValue] = []
    for block in content:
        if isinstance(block, TextBlock):
            parts.append(_text(block.text))
        else:
            parts.append({"type": "media", "modality": block.type, "mime_type": block.media_type})
    return parts


def _result(content: Content) -> JsonValue:
    return content if isinstance(content, str) else _parts(content)


def _text(text: str) -> _Part:
    return {"type": "text", "content": text}


def _redactor() -> Redactor | None:
    """Return the redactor of the current agent, or None."""
    agent = current_agent()
    if agent is None or not agent.run.screens:
        return None
    screen = agent.run.screen_of(agent.runtime.agent_path)
    return None if screen is None else screen.at(lenient=True)


def _clean(value: JsonValue) -> JsonValue:
    redactor = _redactor()
    return value if redactor is None else clean_json(value, redactor)


def _json(value: JsonValue) -> str:
    return _encoded(_bounded(_clean(value)))


def _bounded(value: JsonValue) -> JsonValue:
    """Return data cut to the maximum size of an attribute; it must be redacted already."""
    cut = _cut(value)
    text = _encoded(cut)
    return cut if len(text) <= _MOST else _shortened(text, _MOST // 2)


def _cut(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return _shortened(value, _TEXT)
        case list():
            return [_cut(one) for one in value]
        case dict():
            return {key: _cut(one) for key, one in value.items()}
        case _:
            return value


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _encoded(value: JsonValue) -> str:
    try:
        return to_json(value).decode()
    except ValueError:  # a lone surrogate, such as in a file's name
        return json.dumps(value)
