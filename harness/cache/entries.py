"""Cache entries: cached model answers and tool results, and their keys.

Equal requests get equal keys. A failing cache never fails a run.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any, Generic, TypeVar, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from .._internal.records import record
from ..messages.message import AIMessage, Content, Message, ToolCall, ToolMessage, new_id
from ..models.base import ChatRequest
from ..tools.schemas import ToolSpec
from ..tools.tool import CachePolicy, Tool, ToolResult
from . import Cache

__all__ = ["Entries", "ModelCache", "ToolCache", "model_key", "tool_key"]


_VERSION = 1
"""Part of every key; raise it when what is stored changes, and old entries are not found."""


def model_key(model_name: str, request: ChatRequest) -> str:
    """Return the key of a model call, made of everything that decides its answer.

    Left out are ids that are made up anew for each run, the agent's name and cache markers. A
    tool call counts by its place among the calls, so pairs of call and result stay distinct. A
    setting that is not JSON data makes the key unique: such a request is never found again.

    Args:
        model_name: Full name of the model. Two models of one name that are set up differently
            (another server, other parameters of their own) must not share a cache.
        request: The call.
    """
    places: dict[str, int] = {}
    return _key(
        "model",
        [
            model_name,
            [_message(message, places) for message in request.messages],
            [section.text for section in request.system],
            [_tool(tool) for tool in request.tools],
            request.tool_choice,
            request.settings,
            request.output_schema,
        ],
    )


def tool_key(
    tool_name: str,
    args: Mapping[str, JsonValue],
    custom: Callable[[Mapping[str, JsonValue]], str] | None = None,
) -> str:
    """Return the key of a tool call.

    Args:
        tool_name: The tool.
        args: Its arguments; their order does not matter.
        custom: Makes a text of the arguments that stands for them.
    """
    return _key("tool", [tool_name, args if custom is None else [custom(args)]])


def _key(kind: str, parts: Sequence[Any]) -> str:
    text = json.dumps([_VERSION, *parts], sort_keys=True, separators=(",", ":"), default=_foreign)
    return f"{kind}:{blake2b(text.encode(), digest_size=32).hexdigest()}"


def _foreign(value: object) -> object:
    # A repr may hold an address, and another object may get the same one.
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else _unique()


def _unique() -> str:
    return secrets.token_hex(16)


def _message(message: Message, places: dict[str, int]) -> list[Any]:
    if isinstance(message, AIMessage):
        blocks = [
            ["call", _place(block.id, places), block.name, block.args, block.invalid]
            if isinstance(block, ToolCall)
            else asdict(block)
            for block in message.content
        ]
        return ["ai", message.source, message.stop_reason, blocks]
    content = _content(message.content)
    if isinstance(message, ToolMessage):
        place = _place(message.tool_call_id, places)
        return ["tool", place, message.name, message.status, content]
    return ["human", message.source, content]


def _content(content: Content) -> Any:
    return content if isinstance(content, str) else [asdict(block) for block in content]


def _place(call_id: str, places: dict[str, int]) -> int:
    return places.setdefault(call_id, len(places))


def _tool(tool: ToolSpec | Mapping[str, JsonValue]) -> Any:
    if isinstance(tool, ToolSpec):
        return ["tool", tool.name, tool.description, tool.parameters]
    return ["provider", dict(tool)]


T = TypeVar("T")

logger = logging.getLogger(__name__)


class Entries(Generic[T]):
    """Values of one type in a cache, as JSON of that type.

    Reading validates and imports nothing that the data names. Whatever goes wrong with the cache
    is logged once and counts as a miss.

    Args:
        cache: Where they are.
        value_type: Annotation of the values.
    """

    def __init__(self, cache: Cache, value_type: Any) -> None:
        self._cache = cache
        self._adapter: TypeAdapter[T] = TypeAdapter(value_type)
        self._warned = False

    async def get(self, key: str) -> T | None:
        """Return the value, or None."""
        try:
            data = await self._cache.get(key)
            return None if data is None else self._adapter.validate_json(data)
        except ValidationError:
            # Its text would put the entry's content into the log.
            logger.log(self._level(), "%s: an entry is damaged and counts as a miss", self._name)
        except Exception as error:
            text = "%s: cannot be read, so nothing comes from it: %s"
            logger.log(self._level(), text, self._name, error, exc_info=error)
        return None

    async def set(self, key: str, value: T, ttl: float | None) -> None:
        """Store a value if that is possible."""
        try:
            await self._cache.set(key, self._adapter.dump_json(value), ttl)
        except Exception as error:
            text = "%s: cannot be written, so nothing goes to it: %s"
            logger.log(self._level(), text, self._name, error, exc_info=error)

    @property
    def _name(self) -> str:
        return type(self._cache).__name__

    def _level(self) -> int:
        """Return how severe a failure is: the first is a warning, the rest are the same again."""
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        return level


class ModelCache:
    """Answers by `model_key`.

    A hit saves the whole call: time, tokens and dollars. It is worth having where the same run is
    repeated (tests, demos, evaluations, a run that failed late and is started anew). It replays:
    a model that would answer differently each time, because of its temperature, gives its first
    answer again until the entry's time is over. A failed cache is logged once and never fails a
    run.

    Agents may share a cache if they use the same account of a provider: some models' thinking is
    accepted only by the account that paid for it. Identical requests at the same moment are all
    sent, and the last answer stays.

    Args:
        cache: Where answers are kept.
        ttl: Seconds an answer may be replayed; None for as long as there is room.
    """

    def __init__(self, cache: Cache, ttl: float | None = None) -> None:
        self._entries: Entries[AIMessage] = Entries(cache, AIMessage)
        self._ttl = ttl

    async def get(self, key: str, messages: Sequence[Message] = ()) -> AIMessage | None:
        """Return the answer with an id of its own and no usage, since nothing was used.

        Args:
            key: The `model_key` of the request.
            messages: The transcript it will join. An answer whose tool calls are in there already
                is not replayed: a call id is unique in a transcript, and an answer that comes
                back in the same thread would go round in circles.
        """
        answer = await self._entries.get(key)
        if answer is None or _call_ids(answer) & {one for m in messages for one in _call_ids(m)}:
            return None
        return replace(answer, id=new_id("msg"), usage=None)

    async def set(self, key: str, answer: AIMessage) -> None:
        """Store an answer, without its agent's name and what it cost."""
        await self._entries.set(key, replace(answer, usage=None, name=None), self._ttl)


def _call_ids(message: Message) -> set[str]:
    if not isinstance(message, AIMessage):
        return set()
    return {block.id for block in message.content if isinstance(block, ToolCall)}


@record
class _Stored:
    """The part of a result that is the same whoever asks."""

    content: Content
    artifact: JsonValue = None


class ToolCache:
    """Results by `tool_key`.

    For tools whose result follows from their arguments alone: not from who is asking, from the
    thread's state or files, or from the moment. The cache makes no difference between callers. A
    failed cache is logged once and never fails a run. Identical calls at the same moment all run,
    and the last result stays.

    Args:
        cache: Where results are kept.
    """

    def __init__(self, cache: Cache) -> None:
        self._entries: Entries[_Stored] = Entries(cache, _Stored)

    def key(self, tool: Tool, args: Mapping[str, JsonValue]) -> str:
        """Return the `tool_key` of a call, made as the tool's `CachePolicy` says."""
        policy = tool.cacheable
        return tool_key(tool.name, args, policy.key if isinstance(policy, CachePolicy) else None)

    async def get(self, key: str) -> ToolResult | None:
        """Return the result, or None."""
        stored = await self._entries.get(key)
        return None if stored is None else ToolResult(stored.content, stored.artifact)

    async def set(self, key: str, result: ToolResult, policy: CachePolicy | bool = True) -> None:
        """Store a result, unless it is an error or changes state: that must happen each time.

        Args:
            key: The key of the call.
            result: What the tool returned.
            policy: `Tool.cacheable`; says how long the result may be used, and False stores
                nothing.
        """
        changes_state = result.update or result.writes
        if policy is False or result.status != "success" or changes_state:
            return
        ttl = policy.ttl if isinstance(policy, CachePolicy) else None
        await self._entries.set(key, _Stored(result.content, result.artifact), ttl)
