"""Places prompt-cache breakpoints where the next request will find the longest prefix again.

Providers cache in the order tools, system prompt, messages. The marks are neutral; a model that
has no prompt cache ignores them (peers B17, E15).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from harness.errors import AgentBuildError
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import ModelHandler, ModelRequest, ModelResponse
from harness.messages import AIMessage, Message
from harness.models.base import PromptSection

__all__ = ["MAX_BREAKPOINTS", "PromptCachingMiddleware"]

MAX_BREAKPOINTS = 4
"""As many as a request may carry."""

_TRAILING = 8


class PromptCachingMiddleware(AgentMiddleware):
    """Marks tools, the stable part of the system prompt, and two places in the messages.

    List it last, so that it sees the request as it is sent. The two places are the end of the
    transcript and where the transcript ended at the previous call: the first is written for the
    next call, the second is read by this one however many results came in between. Messages that
    only this view has, such as reminders at the end, are left out.

    Args:
        min_messages: Requests with fewer messages are not marked at all.
        volatile_sections: Names of system sections that change during a thread. The breakpoint
            stands before the first of them, unless a section's owner has already set one.

    Raises:
        AgentBuildError: `min_messages` is negative.
    """

    def __init__(
        self,
        *,
        min_messages: int = 0,
        volatile_sections: Collection[str] = ("skills", "memory"),
    ) -> None:
        if min_messages < 0:
            raise AgentBuildError(f"min_messages must be 0 or more; got {min_messages}")
        self.min_messages = min_messages
        self.volatile_sections = frozenset(volatile_sections)

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Mark the request and pass it on."""
        if len(request.messages) < self.min_messages:
            return await handler(request)
        cache_tools = bool(request.tools)
        system = self._mark_system(request.system, MAX_BREAKPOINTS - cache_tools)
        left = MAX_BREAKPOINTS - cache_tools - sum(section.cache for section in system)
        places = _message_places(request.messages, request.state.get("messages", ()))
        return await handler(
            request.override(
                system=system,
                cache_tools=cache_tools,
                cache_messages=tuple(sorted(places[:left])),
            )
        )

    def _mark_system(
        self, system: Sequence[PromptSection], allowed: int
    ) -> tuple[PromptSection, ...]:
        marked = [place for place, section in enumerate(system) if section.cache]
        if not marked:
            volatile = (
                place for place, one in enumerate(system) if one.name in self.volatile_sections
            )
            marked = [place for place in (next(volatile, len(system)) - 1,) if place >= 0]
        # The last message is worth a breakpoint more than a third part of the system prompt.
        keep = frozenset(marked[-min(allowed, 2) :])
        return tuple(
            section if section.cache == (place in keep) else replace(section, cache=place in keep)
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
        if isinstance(messages[place], AIMessage):
            return [last, place - 1]
    return [last]
