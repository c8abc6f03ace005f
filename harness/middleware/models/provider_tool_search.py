"""Leaves it to the provider to show its model tools when they are looked for.

The provider gets all tools, but its model sees only a search tool and those that are not put off;
what a search finds is added at that place, so the cached prompt before it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from pydantic import JsonValue

from ..._internal.records import IdentityCache
from ...errors import AgentBuildError, MiddlewareError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...tools.tool import Tool

__all__ = ["ProviderToolSearchMiddleware"]

_Offered: TypeAlias = tuple[Tool | Mapping[str, JsonValue], ...]

_SEARCH_TOOLS: Mapping[str, Mapping[str, JsonValue]] = {
    "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
}
"""By provider, the tool its model searches with."""


class ProviderToolSearchMiddleware(AgentMiddleware):
    """Puts tools behind the provider's tool search; for Anthropic's models.

    Worth it from about twenty tools on. Leave out of the search the few that nearly every turn
    needs. List it after middleware that chooses the model or the tools.

    Args:
        searchable_tools: Tools, or their names, that the model has to look for; None for all of
            the agent's. Names that are not offered have no effect, and neither has a tool while a
            request forces it. Provider tools are searched if they say `defer_loading` themselves.

    Raises:
        AgentBuildError: It is no collection of tools or names.
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
    """Return the tools with the search tool, unless they hold one.

    It goes first, so that there is a tool that is not put off for a breakpoint to stand on.
    """
    there = any(not isinstance(one, Tool) and _is_search(one) for one in tools)
    return tools if there else (search, *tools)


def _is_search(tool: Mapping[str, JsonValue]) -> bool:
    return str(tool.get("type")).startswith("tool_search_tool_")


def _is_put_off(tool: Tool | Mapping[str, JsonValue]) -> bool:
    """Whether a provider tool, or one of a set of them, says that it has to be looked for."""
    if isinstance(tool, Tool):
        return False
    own = cast(Mapping[str, Any], tool)
    parts: list[Mapping[str, Any]] = [own, own.get("default_config") or {}]
    parts += (own.get("configs") or {}).values()
    return any(part.get("defer_loading") for part in parts)
