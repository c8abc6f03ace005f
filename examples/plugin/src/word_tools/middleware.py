"""The middleware `call_log`: one line on stderr for each tool call."""

from __future__ import annotations

import logging
from typing import Any

from deep_agent_mcp import AgentMiddleware, ToolCallRequest

__all__ = ["CallLog"]

logger = logging.getLogger(__name__)


class CallLog(AgentMiddleware):
    """Logs each tool call with the name of its tool and its status.

    Args:
        level: Name of the log level.
    """

    def __init__(self, level: str = "info") -> None:
        self._level = logging.getLevelNamesMapping()[level.upper()]

    async def wrap_tool_call(self, request: ToolCallRequest, handler: Any) -> Any:
        """Run the call, and log how it ended."""
        outcome = await handler(request)
        logger.log(self._level, "%s: %s", request.call.name, outcome.message.status)
        return outcome
