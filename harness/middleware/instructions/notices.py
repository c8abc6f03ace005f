"""Notices: messages that a middleware adds to the transcript, and how they are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...messages.message import HumanMessage, Message
from ...state.channels import State
from ..context.summary_view import SummaryChunk

__all__ = ["is_cut"]


def is_cut(state: State, source: str) -> bool:
    """Whether a summary has taken the last notice of a source out of the model's view."""
    chunks = cast(Sequence[SummaryChunk], state.get("summaries") or ())
    if not chunks:
        return False
    messages = cast(Sequence[Message], state.get("messages") or ())
    for place in range(len(messages) - 1, chunks[-1].upto_index, -1):
        message = messages[place]
        if isinstance(message, HumanMessage) and message.source == source:
            return False
    return True
