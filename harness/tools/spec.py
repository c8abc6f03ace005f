"""Tool specifications: what a model is told of a tool, or of one its provider runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard, cast

from pydantic import JsonValue

from .._internal.records import record
from ..errors import AgentBuildError

__all__ = ["ToolSpec", "is_provider_tool"]


@record
class ToolSpec:
    """A tool as the model sees it. `cache` marks a prompt-cache breakpoint after it."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    cache: bool = False


_CLIENT_TYPES = ("custom", "function")


def is_provider_tool(value: object) -> TypeGuard[Mapping[str, JsonValue]]:
    """Say whether a value is a tool that runs at the model's provider.

    Such a tool is a mapping in the provider's own form, such as `{"type": "web_search_20250305",
    "name": "web_search"}`. It is sent with each request and never run here.

    Raises:
        AgentBuildError: A mapping that is no such tool.
    """
    if not isinstance(value, Mapping):
        return False
    kind = cast(Mapping[str, object], value).get("type")
    if not isinstance(kind, str) or not kind or kind in _CLIENT_TYPES:
        raise AgentBuildError(
            f"a tool given as a mapping runs at the model's provider and needs the provider's "
            f"type for it, such as 'web_search_20250305'; got {value!r}. For a tool that runs "
            "here use Tool.from_schema."
        )
    return True
