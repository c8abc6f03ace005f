"""Gives tools other descriptions, wherever the tools come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from pydantic import JsonValue

from ..._internal.records import IdentityCache
from ...errors import AgentBuildError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...tools.tool import Tool

__all__ = ["ToolDescriptionMiddleware"]

_Offered: TypeAlias = tuple[Tool | Mapping[str, JsonValue], ...]


class ToolDescriptionMiddleware(AgentMiddleware):
    """Shows a model other descriptions of tools than their own.

    Tools that the provider runs stay as they are. List it after middleware that adds tools for a
    call (`MCPToolsMiddleware`), and before middleware that counts what is sent.

    Args:
        descriptions: What the model reads, by the tool's name; a name that no tool has is no
            error, as tools may come and go.

    Raises:
        AgentBuildError: A name or a description is no text, or empty.
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
