"""Functions as subagents: what they are given, and what their failures become."""

from __future__ import annotations

import logging
from typing import cast

import anyio

from ..errors import CheckpointError, ToolError
from ..limits.limits import LimitReached
from ..loop.hooks.calling import FAILURES, as_failure
from ..tools.results import result_of
from ..tools.signatures import ALL_ARGUMENTS
from ..tools.tool import ToolResult, ToolRuntime
from .definitions import CompiledSubAgent

__all__ = ["run_function"]

logger = logging.getLogger(__name__)


async def run_function(
    subagent: CompiledSubAgent, description: str, runtime: ToolRuntime
) -> ToolResult:
    """Return what the function makes of a task; its failure is an error result.

    Raises:
        Interrupted: It waits for an answer.
        LimitReached: What it ran met a limit of the run tree.
        CheckpointError: The journal failed under it.
    """
    body = subagent.function_body()
    seconds = None if subagent.limits is None else subagent.limits.seconds
    try:
        with anyio.move_on_after(seconds):
            value: object = await body({ALL_ARGUMENTS: description}, runtime)
            return result_of(value, subagent.name)
    except (LimitReached, CheckpointError):
        raise
    except ToolError as error:
        why = str(error)
    except FAILURES as raised:
        error = as_failure(raised)
        logger.warning("subagent %s failed", subagent.name, exc_info=error)
        why = f"{type(error).__name__}: {error}"
    else:
        why = f"limit: it was stopped after {cast(float, seconds):,.4g} seconds"
    return ToolResult(why, status="error")
