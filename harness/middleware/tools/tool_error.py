"""Lets a function say what the model reads when a tool raises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from ...errors import MiddlewareError, ToolFailed
from ...loop.hooks.middleware import AgentMiddleware, check_call, settle
from ...loop.hooks.requests import ToolCallOutcome, ToolCallRequest, ToolHandler
from ...loop.tools.outcomes import failure
from ...messages.message import Content, ContentBlock, TextBlock, is_media
from ...tools.tool import Tool
from .tool_filter import ToolFilter

__all__ = ["OnToolError", "ToolErrorMiddleware"]

_Said: TypeAlias = str | Sequence[ContentBlock] | None

OnToolError: TypeAlias = Callable[[Exception, ToolCallRequest], _Said | Awaitable[_Said]]
"""Takes what a tool raised and its call; returns what the model shall read, or None."""


class ToolErrorMiddleware(AgentMiddleware):
    """Turns what a tool raised into an error result of one's own words.

    It is asked after the last attempt of a tool that is tried again, about timeouts and
    `ToolError`s too, and about what a `strict` tool raised: an answer keeps the run going. It is
    not asked about calls that were refused or whose arguments are wrong, as their tool did not run.

    Several may be listed if each names its tools; the innermost one that answers decides.

    Args:
        on_error: Function of (error, request), sync or async, that returns the result's text or
            content blocks. None leaves everything as it would be without: the usual error result,
            or the end of the run for a strict tool. A sync one must not block.
        tools: Names or `Tool`s it is for; None for every tool.

    Raises:
        AgentBuildError: `on_error` is not such a function, or `tools` names none.
    """

    supplies_tools = False

    def __init__(self, on_error: OnToolError, *, tools: Sequence[str | Tool] | None = None) -> None:
        self._tools = ToolFilter.of("ToolErrorMiddleware", tools)
        check_call(self.name, "on_error", ("error", "request"), on_error)
        self._on_error = on_error

    @property
    def name(self) -> str:
        """With the names of the tools, if it is not for all."""
        return f"{super().name}{self._tools}"

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Ask the function about what the tool raised, if it did."""
        if request.call.name not in self._tools:
            return await handler(request)
        try:
            outcome = await handler(request)
        except ToolFailed as failed:
            cause = failed.__cause__
            content = await self._content(
                cause if isinstance(cause, Exception) else failed, request
            )
            if content is None:
                raise
            outcome = failure(request.call, "")
        else:
            if outcome.error is None:
                return outcome
            content = await self._content(outcome.error, request)
            if content is None:
                return outcome
        return replace(outcome, message=replace(outcome.message, content=content), error=None)

    async def _content(self, error: Exception, request: ToolCallRequest) -> Content | None:
        said: object = await settle(self._on_error(error, request))
        if said is None or isinstance(said, str):
            return said
        blocks = tuple(cast("Sequence[object]", said)) if isinstance(said, list | tuple) else ()
        if blocks and all(isinstance(one, TextBlock) or is_media(one) for one in blocks):
            return cast("tuple[ContentBlock, ...]", blocks)
        raise MiddlewareError(
            f"{self.name}: on_error returned {said!r}; it returns a text, TextBlocks and "
            "ImageBlocks (or other content blocks), or None"
        )
