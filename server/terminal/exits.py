"""Exit codes of commands that stay with a run."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Exit", "exit_code"]


class Exit(IntEnum):
    """What `run` and `runs wait` end with."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    NEEDS_APPROVAL = 3
    LIMIT = 4
    STILL_AT_WORK = 124
    INTERRUPTED = 130
    NO_READER = 141


def exit_code(status: str, reason: str) -> Exit:
    """Return the exit code for where a run stands."""
    match status:
        case "done":
            return Exit.DONE
        case "needs_approval":
            return Exit.NEEDS_APPROVAL
        case "running" | "queued":
            return Exit.STILL_AT_WORK
        case "paused":
            return Exit.INTERRUPTED
        case _:
            return Exit.LIMIT if reason.startswith("limit") else Exit.FAILED
