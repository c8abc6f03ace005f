"""Gives many tools what `Tool.retry` gives one: further attempts after an error that may pass.

The attempts are made where a tool's own are, inside the gate: a call is judged and approved once,
each attempt has the tool's timeout, sees its number and counts against the limits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ...errors import AgentBuildError, ToolFailed
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ToolCallOutcome, ToolCallRequest, ToolHandler
from ...tools.retries import RetryOn
from ...tools.tool import Tool
from ..models.retry_options import OnFailure, check_on_failure, retry_policy, text_by
from .tool_filter import ToolFilter

__all__ = ["ToolRetryMiddleware"]

logger = logging.getLogger(__name__)


class ToolRetryMiddleware(AgentMiddleware):
    """Repeats calls of tools that failed, after a wait that grows.

    Only tools that are `read_only` or `idempotent`, and not `once`, are tried again: another
    attempt of any other could act twice. A tool with a `retry` of its own keeps that, and so does
    one that an outer `ToolRetryMiddleware` has taken: attempts never multiply. A call that was
    refused, rejected or given wrong arguments did not fail and is not repeated.

    Several may be listed if each names its tools.

    Args:
        max_retries: Attempts after the first.
        tools: Names or `Tool`s it is for; None for every tool.
        retry_on: Error types or a predicate; by default errors that may pass (`may_pass`). Others
            become the call's error result at once.
        on_failure: What comes of such an error when no attempt is left. `continue` makes it the
            call's error result; `error` ends the run with `ToolFailed`, what finished is kept; a
            function makes the result's text of it.
        backoff_factor: What each further wait is multiplied by; 0 waits equally long each time.
        initial_delay: Seconds to wait after the first attempt.
        max_delay: Seconds that no wait exceeds, jitter included.
        jitter: Vary each wait by up to a quarter.

    Raises:
        AgentBuildError: An option makes no sense, or `tools` has a `Tool` that may not be repeated.
    """

    supplies_tools = False

    def __init__(
        self,
        max_retries: int = 2,
        *,
        tools: Sequence[str | Tool] | None = None,
        retry_on: RetryOn = None,
        on_failure: OnFailure = "continue",
        backoff_factor: float = 2.0,
        initial_delay: float = 1.0,
        max_delay: float = 60.0,
        jitter: bool = True,
    ) -> None:
        self._tools = ToolFilter.of("ToolRetryMiddleware", tools)
        for one in tools or ():
            if isinstance(one, Tool) and not _repeatable(one):
                raise AgentBuildError(
                    f"{self.name}: a second attempt of {one.name!r} could act twice. Mark the tool "
                    "read_only or idempotent if that is what it is, or leave it out."
                )
        check_on_failure(self.name, on_failure)
        self._on_failure: OnFailure = on_failure
        self._policy = retry_policy(
            self.name,
            max_retries=max_retries,
            retry_on=retry_on,
            backoff_factor=backoff_factor,
            initial_delay=initial_delay,
            max_delay=max_delay,
            jitter=jitter,
        )

    @property
    def name(self) -> str:
        """With the names of the tools, if it is not for all."""
        return f"{super().name}{self._tools}"

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Let the call be repeated where that is safe."""
        tool = request.tool
        if tool is None or tool.name != request.call.name or tool.name not in self._tools:
            return await handler(request)
        if tool.retry is not None:
            return await handler(request)
        if not _repeatable(tool):
            return self._noted(tool, await handler(request))
        outcome = await handler(request.override(tool=replace(tool, retry=self._policy)))
        error = outcome.error
        if error is None or not self._policy.retries(error):
            return outcome
        return await self._failed(outcome, error)

    async def _failed(self, outcome: ToolCallOutcome, error: Exception) -> ToolCallOutcome:
        """Return what comes of an error that the last attempt left."""
        if self._on_failure == "continue":
            return outcome
        if self._on_failure == "error":
            raise ToolFailed(
                f"{outcome.message.text} The run ended, as {self.name} says. What finished is kept."
            ) from error
        text = await text_by(self.name, self._on_failure, error)
        return replace(outcome, message=replace(outcome.message, content=text))

    def _noted(self, tool: Tool, outcome: ToolCallOutcome) -> ToolCallOutcome:
        """Say why a call of a tool that is named here was not repeated."""
        error = outcome.error
        if self._tools.names is not None and error is not None and self._policy.retries(error):
            logger.warning(
                "%s does not repeat %s: it is neither read_only nor idempotent, or runs once",
                self.name,
                tool.name,
            )
        return outcome


def _repeatable(tool: Tool) -> bool:
    return (tool.read_only or tool.idempotent) and not tool.once
