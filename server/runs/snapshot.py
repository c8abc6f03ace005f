"""Snapshot: where a run stands, for whoever asks."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import Interrupt, Run
from ...harness.messages.message import ToolMessage
from ..sampling.queue import SampledCall
from .accounts import Account

__all__ = ["Snapshot"]


@record
class Snapshot:
    """Status of a run.

    Attributes:
        run: Its record.
        questions: Open questions, when it waits for answers.
        result: The result of its call, when it is a driven run that has ended.
        calls: Calls of a client's model that it, or its background tasks, wait for.
        notes: What became of answers that were not taken; why a call is not recorded.
        stuck: Why it cannot go on, while it is `running` and nobody works on it.
        data: Its structured answer, if it owed one and is done.
        stopping: Whether this server stops, so that the next one goes on with it.
        account: What it changed and what it could not do, once a delegated run has ended.
        waits_for: What it waits for, in words, while it is `queued`.
    """

    run: Run
    questions: Sequence[Interrupt] = ()
    result: ToolMessage | None = None
    calls: Sequence[SampledCall] = ()
    notes: Sequence[str] = ()
    stuck: str | None = None
    data: JsonValue = None
    stopping: bool = False
    account: Account | None = None
    waits_for: str = ""
