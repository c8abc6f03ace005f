"""Structured runs: remembers which answers are JSON of a schema, which a run's record lacks."""

from __future__ import annotations

from ...harness.agent import RunResult

__all__ = ["StructuredRuns"]

_MOST = 10_000


class StructuredRuns:
    """Of the runs that ended in this process, or were looked up: whether the answer is data."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}

    def get(self, run_id: str) -> bool | None:
        """Return whether a run's answer is data; None if that is not known."""
        return self._known.get(run_id)

    def note(self, run_id: str, *, is_structured: bool) -> None:
        """Remember it."""
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[run_id] = is_structured

    def note_result(self, result: RunResult) -> None:
        """Remember how a run ended."""
        if result.run.kind == "delegate" and result.run.status == "done":
            self.note(result.run.id, is_structured=result.structured_response is not None)
