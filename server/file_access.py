"""Reading a thread's files from outside of a run."""

from __future__ import annotations

from typing import NoReturn

from harness.checkpoint.base import Checkpointer
from harness.state import State
from harness.tools import ToolRuntime

__all__ = ["reading_runtime"]


def reading_runtime(thread_id: str, state: State, journal: Checkpointer) -> ToolRuntime:
    """Return what a backend needs to open a thread's files for reading.

    Nothing can be asked or delegated through it, because no call is running.
    """
    return ToolRuntime(
        state=state,
        tool_call_id="",
        thread_id=thread_id,
        run_id="",
        ns="",
        agent_path=(),
        context=None,
        journal=journal,
        stream_writer=lambda _: None,
        interrupt=_no_call,
        run_subagent=_no_call,
    )


def _no_call(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("no call is running, so nothing can be asked or delegated")
