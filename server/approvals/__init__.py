"""Approvals: questions of runs, their answers, and remembered decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...harness.checkpoint.base import Checkpointer

if TYPE_CHECKING:
    from ...harness.messages.message import ToolCall
    from ...harness.policy.composite import CallPlace
    from ...harness.tools.tool import Tool
    from .remembered import Remembered

__all__ = ["RunConsents"]


class RunConsents:
    """Decisions that last, for all runs of a server; `Consents` of the policy.

    Args:
        journal: Where they are.

    Attributes:
        key: Signs them; None if decisions are not remembered.
    """

    def __init__(self, journal: Checkpointer) -> None:
        self.key: bytes | None = None
        self._journal = journal
        self._remembered: Remembered | None = None

    @property
    def remembered(self) -> Remembered | None:
        """The decisions; None if they are not remembered."""
        if self._remembered is None and self.key is not None:
            from .remembered import Remembered  # few runs ask questions

            self._remembered = Remembered(self._journal, self.key)
        return self._remembered

    async def cover(self, call: ToolCall, tool: Tool, place: CallPlace) -> bool:
        """Whether a remembered decision allows a call."""
        remembered = self.remembered
        return remembered is not None and await remembered.cover(call, tool, place)
