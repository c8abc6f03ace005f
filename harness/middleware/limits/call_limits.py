"""Call limits: checks and texts shared by the middleware that limits calls."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import AgentBuildError

__all__ = ["check_call_limits", "times"]


def check_call_limits(
    owner: str,
    thread_limit: int | None,
    run_limit: int | None,
    exit_behavior: str,
    behaviors: Sequence[str],
) -> None:
    """Check the options of a middleware that limits calls.

    Raises:
        AgentBuildError: There is no limit, one is not positive, or the behavior is unknown.
    """
    if thread_limit is None and run_limit is None:
        raise AgentBuildError(f"{owner} limits nothing: give thread_limit, run_limit, or both")
    for name, limit in (("thread_limit", thread_limit), ("run_limit", run_limit)):
        if limit is not None and limit < 1:
            raise AgentBuildError(f"{owner}: {name} must be 1 or more; got {limit}")
    if exit_behavior not in behaviors:
        raise AgentBuildError(
            f"{owner}: exit_behavior is one of {', '.join(behaviors)}; got {exit_behavior!r}"
        )


def times(count: int) -> str:
    """Return a number of times in words, such as `1 time` or `3 times`."""
    return "1 time" if count == 1 else f"{count:,} times"
