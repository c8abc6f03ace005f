"""Makes a transcript valid before a run starts: each call has exactly one result, in its place.

A model is only asked with calls and results in pairs, whatever the transcript holds. This stores
what it is asked with, so that people and other programs see it too. Nothing is written when nothing
is wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import HookResult, Runtime
from ...messages.message import Message
from ...messages.transcript import paired
from ...state.channels import Overwrite, State

__all__ = ["PatchToolCallsMiddleware"]


class PatchToolCallsMiddleware(AgentMiddleware):
    """Repairs dangling calls and orphaned results when a run begins.

    A call without a result gets an error result directly after the results its answer has. A
    result without a call is removed, and one that stands elsewhere is moved to its answer.
    """

    def before_agent(self, state: State, runtime: Runtime) -> HookResult:
        """Return the repaired transcript as an `Overwrite`, or nothing if it is valid."""
        messages: Sequence[Message] = state.get("messages", ())
        patched = paired(messages)
        same = len(patched) == len(messages) and all(map(operator.is_, patched, messages))
        return None if same else {"messages": Overwrite(list(patched))}
