"""Provider features: the prompt cache, and tools that the provider shows on demand.

Providers cache tools, system prompt and messages, in this order: a change invalidates everything
after it. So sections that change go to the end of the system prompt, and each breakpoint is at a
place up to which the next request has the same text. The marks are neutral; a model without a
prompt cache ignores them.

With tool search, the provider gets all tools, but its model sees only a search tool and the tools
that are not deferred. Found tools are added at that place, so the cached prompt before it stays
valid.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, cast, get_args

from pydantic import JsonValue

from ..._internal.records import IdentityCache, changed, record
from ...errors import AgentBuildError, MiddlewareError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...messages.message import AIMessage, Message
from ...models.base import PromptSection
from ...tools.tool import Tool

__all__ = [
    "VOLATILE_SECTIONS",
    "PromptCachingMiddleware",
    "ProviderToolSearchMiddleware",
]


VOLATILE_SECTIONS = ("subagents", "skills", "memory", "mcp_servers")
"""Built-in sections that differ between threads or change during one, the most stable first."""

_TTL: TypeAlias = Literal["5m", "1h"]
_Behavior: TypeAlias = Literal["ignore", "warn", "raise"]

_PROVIDERS = ("anthropic:", "anthropic-bedrock:", "anthropic-vertex:", "claude")
"""Beginnings of names of models whose provider accepts breakpoints; a bare id is Anthropic's."""

_TRAILING = 8
_MOST_WARNINGS = 32

_log = logging.getLogger(__name__)


class PromptCachingMiddleware(AgentMiddleware):
    """Marks the stable beginning of a request for the provider's prompt cache.

    List it last, so that it sees the request as it is sent. Two breakpoints are for the messages:
    the end of the transcript, and where it ended at the previous call. The first is written for
    the next call, the second is read by this one however many results came in between. Messages
    that only this view has, such as reminders at the end, are left out. The other two are the end
    of the system prompt, which still holds when the messages are rewritten, and the end of its
    stable sections, which holds when the volatile ones change, and in other threads; if nothing is
    volatile, the end of the tools.

    Args:
        type: The kind of cache; providers have this one.
        ttl: How long an entry lives after its last use. `1h` costs more to write; it is for
            threads that wait longer than five minutes between calls. A request or model that says
            otherwise (`cache_ttl`) wins.
        min_messages_to_cache: Requests with fewer messages are not marked at all.
        unsupported_model_behavior: What to do when the model's provider is not known to take
            breakpoints: `warn` logs it once for each model, `ignore` says nothing, `raise` refuses
            to ask the model. The request is ordered and marked all the same.
        volatile_sections: Names of system sections that go last, in this order.

    Raises:
        AgentBuildError: An argument is not one of those.
    """

    def __init__(
        self,
        *,
        type: Literal["ephemeral"] = "ephemeral",  # noqa: A002 - the name people know
        ttl: _TTL = "5m",
        min_messages_to_cache: int = 0,
        unsupported_model_behavior: _Behavior = "warn",
        volatile_sections: Sequence[str] = VOLATILE_SECTIONS,
    ) -> None:
        _one_of("type", type, ("ephemeral",))
        _one_of("ttl", ttl, get_args(_TTL))
        _one_of("unsupported_model_behavior", unsupported_model_behavior, get_args(_Behavior))
        if min_messages_to_cache < 0:
            raise AgentBuildError(
                f"min_messages_to_cache must be 0 or more; got {min_messages_to_cache}"
            )
        if isinstance(volatile_sections, str):
            raise AgentBuildError(
                f"volatile_sections takes a list of names; write [{volatile_sections!r}]"
            )
        self.type = type
        self.ttl = ttl
        self.min_messages_to_cache = min_messages_to_cache
        self.unsupported_model_behavior = unsupported_model_behavior
        self.volatile_sections = tuple(volatile_sections)
        self._rank = {name: rank for rank, name in enumerate(self.volatile_sections)}
        self._warned: set[str] = set()
        self._newest: tuple[tuple[PromptSection, ...], _Placed] | None = None

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Order and mark the request, and pass it on.

        Raises:
            MiddlewareError: The model accepts no breakpoints, and that has to be an error.
        """
        supported = request.model.name.startswith(_PROVIDERS)
        if not supported:
            self._object(request)
        system = tuple(request.system)
        placed = self._placed(system)
        if len(request.messages) < self.min_messages_to_cache:
            same = placed.ordered == system
            return await handler(request if same else request.override(system=placed.ordered))
        # Two for prompt and tools, two for the messages.
        cache_tools = bool(request.tools) and placed.marks < 2
        places = _message_places(request.messages, request.state.get("messages", ()))
        marked = request.override(
            system=placed.marked, cache_tools=cache_tools, cache_messages=tuple(sorted(places))
        )
        if supported and self.ttl != "5m" and "cache_ttl" not in marked.settings:
            marked = marked.override(settings={**marked.settings, "cache_ttl": self.ttl})
        return await handler(marked)

    def _object(self, request: ModelRequest) -> None:
        if self.unsupported_model_behavior == "ignore":
            return
        name = request.model.name
        text = f"{self.name}: {name} is not known to take prompt-cache breakpoints"
        if self.unsupported_model_behavior == "raise":
            raise MiddlewareError(
                f"{text}; it was not asked. Use a model of Anthropic's, leave the middleware out, "
                "or set unsupported_model_behavior='ignore'."
            )
        if name not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(name)
            _log.warning("%s; it is used anyway.", text)

    def _placed(self, system: tuple[PromptSection, ...]) -> _Placed:
        """Return the ordered and marked sections; most requests have the same as the last one."""
        if self._newest is None or self._newest[0] != system:
            ordered = tuple(sorted(system, key=lambda one: self._rank.get(one.name, -1)))
            ends = self._ends(ordered)
            self._newest = system, _Placed(ordered, _marked(ordered, ends), len(ends))
        return self._newest[1]

    def _ends(self, system: Sequence[PromptSection]) -> list[int]:
        """Return the sections to mark, at most two; marks of their owners take precedence."""
        own = [place for place, section in enumerate(system) if section.cache]
        if own:
            return own[-2:]
        filled = [place for place, section in enumerate(system) if section.text.strip()]
        stable = [place for place in filled if system[place].name not in self._rank]
        return sorted({*stable[-1:], *filled[-1:]})


@record
class _Placed:
    """The sections of a system prompt, the volatile ones last.

    Attributes:
        ordered: The sections in order.
        marked: The sections with breakpoints.
        marks: The number of breakpoints.
    """

    ordered: tuple[PromptSection, ...]
    marked: tuple[PromptSection, ...]
    marks: int


def _one_of(what: str, value: object, accepted: Sequence[str]) -> None:
    if value not in accepted:
        raise AgentBuildError(f"{what} must be {' or '.join(map(repr, accepted))}; got {value!r}")


def _marked(system: Sequence[PromptSection], ends: Sequence[int]) -> tuple[PromptSection, ...]:
    return tuple(
        section if section.cache == (place in ends) else changed(section, cache=place in ends)
        for place, section in enumerate(system)
    )


def _message_places(messages: Sequence[Message], stored: Sequence[Message]) -> list[int]:
    """Return the indices to mark, the more useful one first."""
    last = len(messages) - 1
    if stored:
        end = stored[-1].id
        for place in range(last, max(last - _TRAILING, -1), -1):
            if messages[place].id == end:
                last = place
                break
    if last < 0:
        return []
    for place in range(last, 0, -1):
        message = messages[place]
        # An answer from a client or a middleware was not a call of the model.
        if isinstance(message, AIMessage) and message.source is None:
            return [last, place - 1]
    return [last]


_Offered: TypeAlias = tuple[Tool | Mapping[str, JsonValue], ...]

_SEARCH_TOOLS: Mapping[str, Mapping[str, JsonValue]] = {
    "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
}
"""The search tool of each provider."""


class ProviderToolSearchMiddleware(AgentMiddleware):
    """Puts tools behind the provider's tool search; for Anthropic's models.

    Worth it from about twenty tools on. Leave out of the search the few that nearly every turn
    needs. List it after middleware that chooses the model or the tools.

    Args:
        searchable_tools: Tools, or their names, that the model has to look for; None for all of
            the agent's. Names that are not offered have no effect, and neither has a tool while a
            request forces it. Provider tools are searched if they say `defer_loading` themselves.

    Raises:
        AgentBuildError: It is not a collection of tools or names.
    """

    def __init__(self, *, searchable_tools: Collection[str | Tool] | None = None) -> None:
        if isinstance(searchable_tools, str) or any(
            not isinstance(one, str | Tool)  # pyright: ignore[reportUnnecessaryIsInstance]
            for one in searchable_tools or ()
        ):
            raise AgentBuildError(
                "searchable_tools takes a list of tools or their names, or None for all; got "
                f"{searchable_tools!r}"
            )
        self._names = (
            None
            if searchable_tools is None
            else frozenset(one if isinstance(one, str) else one.name for one in searchable_tools)
        )
        self._adders = {
            provider: IdentityCache[_Offered, _Offered](partial(_with_search, search))
            for provider, search in _SEARCH_TOOLS.items()
        }

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Add the search tool and name what it searches.

        Raises:
            MiddlewareError: The model's provider has no tool search; nothing was sent.
        """
        names = [
            one.name
            for one in request.tools
            if isinstance(one, Tool) and self._is_searched(one.name, request)
        ]
        if not names and not any(map(_is_put_off, request.tools)):
            return await handler(request)
        add = self._adders.get(request.model.name.partition(":")[0])
        if add is None:
            raise MiddlewareError(
                f"{self.name}: {request.model.name} has no tool search of its provider's; nothing "
                f"was sent. Use a model of {', '.join(_SEARCH_TOOLS)}, or leave the middleware "
                "out; LLMToolSelectorMiddleware works with every model."
            )
        offered = request.tools
        settings = request.settings
        if names:
            settings = {**settings, "deferred_tools": tuple(names)}
        tools = add(offered if isinstance(offered, tuple) else tuple(offered))
        return await handler(request.override(tools=tools, settings=settings))

    def _is_searched(self, name: str, request: ModelRequest) -> bool:
        if name == request.tool_choice:
            return False
        return self._names is None or name in self._names


def _with_search(search: Mapping[str, JsonValue], tools: _Offered) -> _Offered:
    """Return the tools with the search tool, unless there is one.

    It comes first, so that there is a tool that is not deferred, for a breakpoint.
    """
    there = any(not isinstance(one, Tool) and _is_search(one) for one in tools)
    return tools if there else (search, *tools)


def _is_search(tool: Mapping[str, JsonValue]) -> bool:
    return str(tool.get("type")).startswith("tool_search_tool_")


def _is_put_off(tool: Tool | Mapping[str, JsonValue]) -> bool:
    """Whether a provider tool, or one of a set of them, is deferred."""
    if isinstance(tool, Tool):
        return False
    own = cast(Mapping[str, Any], tool)
    parts: list[Mapping[str, Any]] = [own, own.get("default_config") or {}]
    parts += (own.get("configs") or {}).values()
    return any(part.get("defer_loading") for part in parts)
