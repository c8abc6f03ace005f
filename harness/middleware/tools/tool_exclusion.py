"""Takes tools away from an agent: they are not offered, and calls of them are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias, cast

from pydantic import JsonValue

from ..._internal.patterns import fits
from ..._internal.records import IdentityCache
from ...errors import AgentBuildError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse, ToolCallRequest
from ...policy import Verdict
from ...tools.tool import Tool

__all__ = ["ToolExclusionMiddleware"]

_Offered: TypeAlias = tuple[Tool | Mapping[str, JsonValue], ...]


class ToolExclusionMiddleware(AgentMiddleware):
    """Strips tools from every request and refuses their calls at the gate.

    A call is refused wherever it comes from: a model that remembers the tool, an edit by a
    person, a driving client, another tool. Tools of the provider are stripped by name too. List it
    after middleware that adds tools for a call (`MCPToolsMiddleware`), and before middleware whose
    prompt section teaches a tool, so that it is left out along with it.

    Args:
        tools: Names, or globs over names such as `delete_*`; a name that no tool has is no error,
            as tools may come and go.

    Raises:
        AgentBuildError: It is no collection of names.
    """

    def __init__(self, tools: Collection[str]) -> None:
        given = cast(object, tools)
        if isinstance(given, str) or any(not isinstance(one, str) or not one for one in tools):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AgentBuildError(
                f"ToolExclusionMiddleware takes a list of tool names or globs; got {tools!r}"
            )
        self._patterns = sorted(set(tools))
        self._kept: IdentityCache[_Offered, _Offered] = IdentityCache(self._without)

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Offer the other tools only."""
        offered = request.tools
        tools = self._kept(offered) if isinstance(offered, tuple) else self._without(tuple(offered))
        if len(tools) < len(offered):
            request = request.override(tools=tools)
        choice = request.tool_choice
        if choice not in ("auto", "any", "none") and self._excludes(choice):
            request = request.override(tool_choice="auto")
        return await handler(request)

    def judge(self, request: ToolCallRequest) -> Verdict | None:
        """Deny calls of excluded tools."""
        name = request.call.name
        if not self._excludes(name):
            return None
        return Verdict("deny", f"{name} is not available to this agent")

    def _without(self, tools: _Offered) -> _Offered:
        return tuple(one for one in tools if not self._excludes(_name_of(one)))

    def _excludes(self, name: str) -> bool:
        return fits(name, self._patterns)


def _name_of(tool: Tool | Mapping[str, JsonValue]) -> str:
    return tool.name if isinstance(tool, Tool) else str(tool.get("name") or tool.get("type"))
