"""Tool specifications: what a model is told of a tool."""

from __future__ import annotations

from pydantic import JsonValue

from .._internal.records import record

__all__ = ["ToolSpec"]


@record
class ToolSpec:
    """A tool as the model sees it. `cache` marks a prompt-cache breakpoint after it."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    cache: bool = False
