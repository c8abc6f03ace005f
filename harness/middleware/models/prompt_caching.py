"""Orders a request, and places its prompt-cache breakpoints, for the longest prefix that holds.

Providers cache in the order tools, system prompt, messages: what changes voids all that comes
after it. So sections that change go to the end of the system prompt, and each breakpoint stands
where the next request will find the same text again. The marks are neutral; a model that has no
prompt cache ignores them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from ..._internal.records import changed, record
from ...errors import AgentBuildError, MiddlewareError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...messages.message import AIMessage, Message
from ...models.base import PromptSection

__all__ = ["MAX_BREAKPOINTS", "VOLATILE_SECTIONS", "PromptCachingMiddleware"]

MAX_BREAKPOINTS = 4
"""As many as a request may carry."""

VOLATILE_SECTIONS = ("subagents", "skills", "memory", "mcp_servers")
"""Sections of our own that differ between threads or change during one, the steadiest first."""

_TTL: TypeAlias = Literal["5m", "1h"]
_Behavior: TypeAlias = Literal["ignore", "warn", "raise"]

_PROVIDERS = ("anthropic:", "claude")
"""How names of models begin whose provider takes breakpoints; a bare id is Anthropic's."""

_TRAILING = 8
_MOST_WARNINGS = 32

_log = logging.getLogger(__name__)


class PromptCachingMiddleware(AgentMiddleware):
    """Puts volatile sections last and spends the four breakpoints of a request.

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
            MiddlewareError: The model takes no breakpoints and that is to be an error.
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
            _log.warning("%s; it is asked all the same.", text)

    def _placed(self, system: tuple[PromptSection, ...]) -> _Placed:
        """Return the sections in order and marked; most requests have those of the last one."""
        if self._newest is None or self._newest[0] != system:
            ordered = tuple(sorted(system, key=lambda one: self._rank.get(one.name, -1)))
            ends = self._ends(ordered)
            self._newest = system, _Placed(ordered, _marked(ordered, ends), len(ends))
        return self._newest[1]

    def _ends(self, system: Sequence[PromptSection]) -> list[int]:
        """Return after which sections to mark, at most two; the marks of owners win."""
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
        ordered: As they came.
        marked: With breakpoints.
        marks: How many.
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
        # What a client or a middleware answered in the model's place was no call of it.
        if isinstance(message, AIMessage) and message.source is None:
            return [last, place - 1]
    return [last]
