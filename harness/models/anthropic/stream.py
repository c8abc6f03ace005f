"""The event stream of one Anthropic answer, turned into deltas and content blocks.

Works on the events as they are on the wire, not on the SDK's objects: provider blocks stay
verbatim, and the arguments of a call are judged by their own text (the SDK silently makes `{}` of
a broken one).

An answer counts only when its stream is whole: it begins once, each block is opened, filled and
closed under its own number, a stop reason follows, and `message_stop` ends it. Events and deltas
of kinds unknown here are passed over, as the provider adds some.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

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
from ..wire import clean_text, parse_arguments
from .request import api_error, refusal

__all__ = ["AnswerBuilder"]

_KNOWN = ("text", "thinking", "redacted_thinking", "tool_use")
"""Types of blocks that are more to the harness than the provider's own data."""

_FILLS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""The type of block that each kind of delta is for; blocks of the provider's own take any."""

_CUT_OFF = ("max_tokens", "model_context_window_exceeded")
"""Why an answer may stop in the middle of a block."""

_Block = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolCall | ProviderBlock


def _is_call_beyond(block: _Block, answered: Collection[JsonValue]) -> bool:
    """Whether a block is a call of a provider's tool whose id is not among those answered."""
    if not isinstance(block, ProviderBlock) or block.data.get("id") in answered:
        return False
    return str(block.data.get("type")).endswith("tool_use")


def _string(data: Mapping[str, Any], key: str) -> str:
    """Return a text that must be there."""
    value = data[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {type(value).__name__}, not text")
    return value


@dataclass(slots=True)
class _OpenBlock:
    """A block that is being received: its first form, and the pieces that followed."""

    start: dict[str, Any]
    text: list[str] = field(default_factory=list[str])
    json: list[str] = field(default_factory=list[str])
    signature: str = ""

    @property
    def kind(self) -> str:
        """Its type."""
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
            case _:  # citations and kinds unknown here add nothing an answer keeps
                pass
        return None

    def _add(self, delta: Mapping[str, Any]) -> None:
        """Add a piece of a block that is the provider's own: text to text, all else as it comes."""
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
        # Some servers send the whole input at the start and no pieces.
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
    """Collects one answer.

    Feed it every event with `feed`; once `complete` is true, `message` gives the answer.
    An answer that the provider paused may go on in a second stream: call `resume` in between.
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
        """All finished blocks, in order. Empty text is left out: it cannot be sent back."""
        blocks = [*self._done, *(self._blocks[index] for index in sorted(self._blocks))]
        return tuple(b for b in blocks if not (isinstance(b, TextBlock) and not b.text))

    @property
    def paused(self) -> bool:
        """Whether the provider stopped in the middle of its own tools and waits to continue.

        It goes on from a block of those only: current models refuse to go on from their own words.
        """
        content = self.content
        if self.stop_reason != "pause_turn" or any(isinstance(one, ToolCall) for one in content):
            return False
        return not content or isinstance(content[-1], ProviderBlock)

    def resume(self) -> None:
        """Get ready for the stream that continues this answer."""
        self._done = list(self.content)
        self._blocks, self._open, self._counts = {}, {}, {}
        self._begun, self.complete, self.stop_reason = False, False, None

    def feed(self, event: Mapping[str, Any]) -> Delta | None:
        """Take one event; return the delta it carries, if any.

        Raises:
            ModelError: The event reports a failure, or does not fit the ones before it.
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
            case _:  # pings, and kinds of events added later
                pass
        return None

    def _check_place(self, kind: str) -> None:
        """Raise if an event comes too early or too late."""
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
        """Return the blocks, without what was cut off before it could mean anything.

        A last call without arguments may have lost them: it must not run. A call of a provider's
        tool never gets its result any more, and the API refuses it without one.
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
        """Return the answer; `model` is the id asked for, used when the server names none.

        Raises:
            ModelError: It was refused, so that nothing of it counts.
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
