"""Tool body: runs an allowed call with its limits, cache, timeout and retries."""

from __future__ import annotations

import logging
import random
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from ..._internal.records import changed
from ...errors import CheckpointError, ToolError, ToolFailed
from ...limits.limits import LimitReached, Meter
from ...messages.message import ToolCall
from ...tools.tool import Tool, ToolResult
from ..hooks.cancellation import FAILURES, as_failure
from ..hooks.requests import ToolCallOutcome, ToolCallRequest
from ..run.interrupts import Asker
from .outcomes import failure, outcome_of

if TYPE_CHECKING:
    from ...cache.tool_cache import ToolCache

__all__ = ["run_cached", "run_tool"]

logger = logging.getLogger(__name__)


async def run_tool(
    tool: Tool,
    args: dict[str, Any],
    request: ToolCallRequest,
    meter: Meter,
    asker: Asker,
) -> ToolCallOutcome:
    """Return the outcome of a call whose arguments are valid.

    Raises:
        LimitReached: The run tree may call no tool any more.
        ToolFailed: A strict tool failed.
        CheckpointError: The journal failed under the tool.
    """
    call, runtime = request.call, request.runtime
    attempt, asked_before = 1, asker.questions
    while True:
        meter.before_tool_call()
        asker.questions = asked_before  # what an attempt before this one asked is answered
        try:
            with anyio.move_on_after(tool.timeout):
                return outcome_of(call, await tool.function(args, runtime))
            raise _TooLong(f"it was stopped after {tool.timeout} s; it may have acted partly")
        except (LimitReached, CheckpointError):
            raise
        except FAILURES as raised:
            error = as_failure(raised)
            policy = tool.retry
            if policy is None or attempt >= policy.attempts or not policy.retries(error):
                return _failed(tool, call, error, attempt)
            await anyio.sleep(policy.delay(attempt, random.random))
            attempt += 1
            runtime = replace(runtime, attempt=attempt)


async def run_cached(
    cache: ToolCache,
    tool: Tool,
    args: dict[str, Any],
    request: ToolCallRequest,
    meter: Meter,
    asker: Asker,
) -> ToolCallOutcome:
    """Return the outcome of a call of a cacheable tool, which an earlier call may have left.

    Raises:
        LimitReached, ToolFailed, CheckpointError: As for `run_tool`.
    """
    call = request.call
    key = cache.key(tool, call.args)
    kept = await cache.get(key)
    if kept is not None:
        return outcome_of(call, kept)
    outcome = await run_tool(tool, args, request, meter, asker)
    message = outcome.message
    if message.status == "success" and not (outcome.update or outcome.writes or outcome.send):
        await cache.set(key, ToolResult(message.content, message.artifact), tool.cacheable)
    return outcome


class _TooLong(TimeoutError):
    """A tool did not end in its time."""


def _log(name: str, error: Exception) -> None:
    """Log what a tool raised: all of it, or what redaction leaves of its text."""
    from ..run.redaction import current_redaction

    screen = current_redaction()
    if screen is None:
        logger.warning("tool %s failed", name, exc_info=error)
        return
    redactor = screen.at(lenient=True)
    text = redactor(str(error)) if redactor is not None else str(error)
    places = "".join(traceback.format_tb(error.__traceback__))  # lines of code, no values
    logger.warning("tool %s failed: %s: %s\n%s", name, type(error).__name__, text, places)


def _failed(tool: Tool, call: ToolCall, error: Exception, attempts: int) -> ToolCallOutcome:
    """Return the error result of a tool that raised, or raise if the tool is strict."""
    times = f" ({attempts} attempts)" if attempts > 1 else ""
    if isinstance(error, ToolError):
        text = str(error)
    elif isinstance(error, _TooLong):
        text = f"{call.name} did not finish{times}: {error}."
    else:
        _log(call.name, error)
        text = f"{call.name} failed{times}: {type(error).__name__}: {error}"
    if tool.strict:
        raise ToolFailed(f"{text} The tool is strict, so the run ended.") from error
    return changed(failure(call, text), error=error)
