"""Offered tools: which tools a middleware applies to, removing tools, and changing descriptions.

A removed tool is not offered, and calls of it are refused. Descriptions of all tools can be
changed, wherever they come from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from pydantic import JsonValue

from ..._internal.patterns import fits
from ..._internal.records import IdentityCache, record
from ...errors import AgentBuildError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse, ToolCallRequest
from ...policy import Verdict
from ...tools.tool import Tool

__all__ = ["ToolDescriptionMiddleware", "ToolExclusionMiddleware", "ToolFilter"]


_Offered: TypeAlias = tuple[Tool | Mapping[str, JsonValue], ...]


class ToolDescriptionMiddleware(AgentMiddleware):
    """Replaces the descriptions of tools that a model sees.

    Tools that the provider runs stay as they are. List it after middleware that adds tools for a
    call (`MCPToolsMiddleware`), and before middleware that counts the request.

    Args:
        descriptions: Descriptions for the model, by the tool's name. A name without a tool is not
            an error, because tools may come and go.

    Raises:
        AgentBuildError: A name or a description is empty, or not text.
    """

    def __init__(self, descriptions: Mapping[str, str]) -> None:
        for name, text in descriptions.items():
            if not (_is_text(name) and _is_text(text)):
                raise AgentBuildError(
                    "ToolDescriptionMiddleware takes a description by the name of each tool; got "
                    f"{name!r}: {text!r}"
                )
        self.descriptions = dict(descriptions)
        self._told: IdentityCache[_Offered, _Offered] = IdentityCache(self._described)

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Describe the tools."""
        offered = request.tools
        if any(isinstance(one, Tool) and one.name in self.descriptions for one in offered):
            known = isinstance(offered, tuple)
            tools = self._told(offered) if known else self._described(tuple(offered))
            request = request.override(tools=tools)
        return await handler(request)

    def _described(self, tools: _Offered) -> _Offered:
        return tuple(
            replace(one, description=self.descriptions[one.name])
            if isinstance(one, Tool) and one.name in self.descriptions
            else one
            for one in tools
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


class ToolExclusionMiddleware(AgentMiddleware):
    """Removes tools from every request, and refuses calls to them.

    A call is refused wherever it comes from: a model that remembers the tool, an edit by a
    person, a driving client, another tool. Tools of the provider are stripped by name too. List it
    after middleware that adds tools for a call (`MCPToolsMiddleware`), and before middleware whose
    prompt section teaches a tool, so that it is left out along with it.

    Args:
        tools: Names, or globs over names such as `delete_*`. A name without a tool is not an
            error, because tools may come and go.

    Raises:
        AgentBuildError: It is not a collection of names.
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
        """Offer only the other tools."""
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


@record
class ToolFilter:
    """Tools by name; `name in filter` says whether one of that name is among them.

    Attributes:
        names: The names, in the order given; None for every tool.
    """

    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, owner: str, tools: Sequence[str | Tool] | None) -> ToolFilter:
        """Return the filter for a `tools` argument.

        Args:
            owner: The middleware, for errors.
            tools: Names or `Tool`s; None for every tool.

        Raises:
            AgentBuildError: It is something else, or empty.
        """
        if tools is None:
            return cls()
        given = f"{owner}: tools takes a list of tool names or Tools, or None for every tool"
        if isinstance(tools, str):
            raise AgentBuildError(f"{given}; write [{tools!r}]")
        names = tuple(dict.fromkeys(_name(given, one) for one in tools))
        if not names:
            raise AgentBuildError(f"{given}; an empty list would do nothing")
        return cls(names)

    def __contains__(self, name: str) -> bool:
        return self.names is None or name in self.names

    def __str__(self) -> str:
        """Return the names in brackets, for the name of a middleware; empty for every tool."""
        return "" if self.names is None else f"[{', '.join(self.names)}]"


def _name(given: str, one: object) -> str:
    if isinstance(one, Tool):
        return one.name
    if isinstance(one, str) and one:
        return one
    raise AgentBuildError(f"{given}; got {one!r}")
