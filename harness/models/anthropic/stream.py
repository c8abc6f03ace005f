"""Parser for the event stream of an Anthropic answer; returns deltas and content blocks.

It reads the raw events instead of the SDK's objects. So provider blocks stay verbatim, and the
arguments of a call are validated as text (the SDK silently turns malformed ones into `{}`).

An answer only counts if its stream is complete: it begins once, each block is opened, filled and
closed under its own index, a stop reason follows, and `message_stop` ends it. Unknown kinds of
events and deltas are ignored, because the provider adds new ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from ..._internal import clean_text
from ..._internal.records import changed
from ...errors import ModelError
from ...messages.message import (
    AIMessage,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    Usage,
)
from ..base import Delta
from ..wire import parse_arguments
from .request import api_error, refusal

__all__ = ["AnswerBuilder"]

_KNOWN = ("text", "thinking", "redacted_thinking", "tool_use")
"""Types of blocks that the harness interprets; all others are the provider's own data."""

_FILLS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""Block type for each kind of delta; provider blocks accept all kinds."""

_CUT_OFF = ("max_tokens", "model_context_window_exceeded")
"""Stop reasons that may end an answer in the middle of a block."""

_Block = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolCall | ProviderBlock


def _is_call_beyond(block: _Block, answered: Collection[JsonValue]) -> bool:
    """Whether a block is a call of a provider's tool without a result in `answered`."""
    if not isinstance(block, ProviderBlock) or block.data.get("id") in answered:
        return False
    return str(block.data.get("type")).endswith("tool_use")


def _string(data: Mapping[str, Any], key: str) -> str:
    """Return a required text field.

    Raises:
        KeyError: The field is missing.
        TypeError: It is not text.
    """
    value = data[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {type(value).__name__}, not text")
    return value


@dataclass(slots=True)
class _OpenBlock:
    """A block that is still being received: its start event, and the pieces after it."""

    start: dict[str, Any]
    text: list[str] = field(default_factory=list[str])
    json: list[str] = field(default_factory=list[str])
    signature: str = ""

    @property
    def kind(self) -> str:
        """Type of the block."""
        return _string(self.start, "type")

    def delta(self, delta: Mapping[str, Any]) -> Delta | None:
        kind = _string(delta, "type")
        if self.kind in _KNOWN and _FILLS.get(kind, self.kind) != self.kind:
            raise ValueError(f"a {kind} in a block of type {self.kind}")
        match kind:
            case "text_delta":
                text = _string(delta, "text")
                self.text.append(text)
                return Delta("text", clean_text(text)) if text else None
            case "thinking_delta":
                text = _string(delta, "thinking")
                self.text.append(text)
                return Delta("thinking", clean_text(text)) if text else None
            case "signature_delta":
                self.signature += _string(delta, "signature")
            case "input_json_delta":
                text = _string(delta, "partial_json")
                self.json.append(text)
                if text and self.kind == "tool_use":
                    call_id, name = str(self.start["id"]), str(self.start["name"])
                    return Delta("tool_args", clean_text(text), call_id, name)
            case _ if self.kind not in _KNOWN:
                self._add(delta)
            case _:  # citations and unknown kinds are not stored
                pass
        return None

    def _add(self, delta: Mapping[str, Any]) -> None:
        """Add a piece to a provider block: text is appended, other values replace earlier ones."""
        for key, value in delta.items():
            known = self.start.get(key)
            if key != "type":
                both = isinstance(known, str) and isinstance(value, str)
                self.start[key] = f"{known}{value}" if both else value

    def close(self) -> _Block:
        start, text = self.start, "".join(self.text)
        match self.kind:
            case "text":
                return TextBlock(clean_text(str(start.get("text") or "") + text))
            case "thinking":
                thinking = str(start.get("thinking") or "") + text
                signature = self.signature or str(start.get("signature") or "")
                return ThinkingBlock(clean_text(thinking), signature)
            case "redacted_thinking":
                return RedactedThinkingBlock(str(start.get("data") or ""))
            case "tool_use":
                return self._call()
            case _:
                return self._provider_block()

    def _raw_arguments(self) -> str:
        raw = "".join(self.json)
        # Some servers send the whole input with the start event, and no pieces.
        return raw if raw or not self.start.get("input") else json.dumps(self.start["input"])

    def _call(self) -> ToolCall:
        raw = self._raw_arguments()
        args = parse_arguments(raw)
        call_id, name = str(self.start["id"]), str(self.start["name"])
        if args is None:
            return ToolCall(call_id, name, invalid=clean_text(raw))
        return ToolCall(call_id, name, args)

    def _provider_block(self) -> ProviderBlock:
        data: dict[str, JsonValue] = dict(self.start)
        if self.json:
            data["input"] = parse_arguments("".join(self.json)) or {}
        return ProviderBlock("anthropic", data)


@dataclass(slots=True)
class AnswerBuilder:
    """Builds one answer from its events.

    Pass every event to `feed`; once `complete` is true, `message` returns the answer. A second
    stream may continue an answer that the provider paused: call `resume` in between.
    """

    provider_model: str = ""
    stop_reason: str | None = None
    stop_details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    complete: bool = False
    usage: Usage = field(default_factory=Usage)
    _blocks: dict[int, _Block] = field(default_factory=dict[int, _Block])
    _open: dict[int, _OpenBlock] = field(default_factory=dict[int, _OpenBlock])
    _done: list[_Block] = field(default_factory=list[_Block])
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _begun: bool = False

    @property
    def content(self) -> tuple[_Block, ...]:
        """All finished blocks, in order, without empty text, which the API would refuse later."""
        blocks = [*self._done, *(self._blocks[index] for index in sorted(self._blocks))]
        return tuple(b for b in blocks if not (isinstance(b, TextBlock) and not b.text))

    @property
    def paused(self) -> bool:
        """Whether the provider paused while running its own tools and waits to continue.

        It can only continue after a provider block: current models do not continue their own text.
        """
        content = self.content
        if self.stop_reason != "pause_turn" or any(isinstance(one, ToolCall) for one in content):
            return False
        return not content or isinstance(content[-1], ProviderBlock)

    def resume(self) -> None:
        """Prepare for the stream that continues this answer."""
        self._done = list(self.content)
        self._blocks, self._open, self._counts = {}, {}, {}
        self._begun, self.complete, self.stop_reason = False, False, None

    def feed(self, event: Mapping[str, Any]) -> Delta | None:
        """Process one event; return its delta, if there is one.

        Raises:
            ModelError: The event reports a failure, or violates the order of events.
        """
        try:
            return self._feed(event)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ModelError(
                f"Anthropic's answer does not follow its own protocol ({event.get('type')}: "
                f"{error!r}). No answer was kept. Run it again; if base_url names another server, "
                "check that it speaks the Messages API.",
                kind="server",
                retryable=True,
            ) from error

    def _feed(self, event: Mapping[str, Any]) -> Delta | None:
        kind = _string(event, "type")
        if kind == "error":
            raise api_error(200, dict(event), {}, streaming=True)
        if kind.startswith(("message_", "content_block_")):
            self._check_place(kind)
        match kind:
            case "message_start":
                self.provider_model = str(event["message"].get("model") or "")
                self._count(event["message"].get("usage"))
                self._begun = True
            case "content_block_start":
                self._start_block(event["index"], event["content_block"])
            case "content_block_delta":
                return self._open[event["index"]].delta(event["delta"])
            case "content_block_stop":
                self._blocks[event["index"]] = self._open.pop(event["index"]).close()
            case "message_delta":
                reason = event["delta"].get("stop_reason")
                if reason is not None:
                    self.stop_reason = _string(event["delta"], "stop_reason")
                self.stop_details = dict(event["delta"].get("stop_details") or {})
                self._count(event.get("usage"))
            case "message_stop":
                self._finish()
            case _:  # pings, and new kinds of events
                pass
        return None

    def _check_place(self, kind: str) -> None:
        """Raise `ValueError` if an event comes too early or too late."""
        if self._begun == (kind == "message_start"):
            raise ValueError("the answer begins twice" if self._begun else "it has not begun")
        if self.stop_reason is not None and kind.startswith("content_block_"):
            raise ValueError("the answer had its stop reason already")

    def _start_block(self, index: object, block: Mapping[str, Any]) -> None:
        if not isinstance(index, int) or index in self._open or index in self._blocks:
            raise ValueError(f"a block cannot begin at {index!r}")
        begun = _OpenBlock(dict(block))
        if begun.kind == "tool_use" and not (_string(block, "id") and _string(block, "name")):
            raise ValueError("a call without an id or a name")
        self._open[index] = begun

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        # Counts are running totals of the stream: a later one replaces an earlier one.
        for key, value in (usage or {}).items():
            if isinstance(value, int):
                self._counts[key] = value

    def _finish(self) -> None:
        if self._open or sorted(self._blocks) != list(range(len(self._blocks))):
            raise ValueError("the end of a block, or all of it, is missing")
        if self.stop_reason is None:
            raise ValueError("the answer has no stop reason")
        self.usage += Usage(
            self._counts.get("input_tokens", 0),
            self._counts.get("output_tokens", 0),
            self._counts.get("cache_read_input_tokens", 0),
            self._counts.get("cache_creation_input_tokens", 0),
        )
        self.complete = True

    def _whole(self) -> tuple[_Block, ...]:
        """Return the blocks of the answer, without calls that are incomplete.

        If the answer was cut off, a last call without arguments may have lost them, so it becomes
        invalid and does not run. Calls of a provider's tool without a result are dropped, because
        the API refuses them.
        """
        content, cut_off = self.content, self.stop_reason in _CUT_OFF
        last = content[-1] if content else None
        if cut_off and isinstance(last, ToolCall) and not last.args:
            content = (*content[:-1], changed(last, invalid=last.invalid or ""))
        if not cut_off and not self.paused:
            return content
        others = [one.data for one in content if isinstance(one, ProviderBlock)]
        answered = [one.get("tool_use_id") for one in others]
        return tuple(one for one in content if not _is_call_beyond(one, answered))

    def message(self, model: str, agent: str | None) -> AIMessage:
        """Return the answer; `model` is the requested id, used if the server names no model.

        Raises:
            ModelError: The provider refused the request, so the answer does not count.
        """
        if self.stop_reason == "refusal":
            raise refusal(self.stop_details, self.usage)
        return AIMessage(
            self._whole(),
            model=f"anthropic:{self.provider_model or model}",
            stop_reason=self.stop_reason,
            usage=self.usage,
            name=agent,
        )
