"""Progress of a call that waits for a run: one line per step, and a sign of life in between.

The counter only rises, nothing is sent after the result, and steps that come faster than the
client reads are left out (the newest line is the one that matters).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio

from ...harness.errors import HarnessError
from ...harness.loop.events import Emit, Event

__all__ = ["HEARTBEAT_SECONDS", "Report", "describe", "reporting"]

HEARTBEAT_SECONDS = 10.0
"""Several hosts give up on a silent call after 60 s (clients 2.1)."""

FLUSH_SECONDS = 1.0
"""How long a client that reads slowly may hold up the result."""

BACKLOG = 32

AGENT_SEPARATOR = " \u203a "

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Sends one notice: counter, total (unknown), text. Does nothing when the client wants none."""


def describe(event: Event) -> str | None:
    """Return what an event means to a person, or None if it is not worth a line."""
    data = event.data
    agents = AGENT_SEPARATOR.join(event.path[::2])
    match data.get("event"):
        case "model_start":
            return f"{agents}: thinking"
        case "model_end":
            text = " ".join(str(data.get("text") or "").split())
            return f"{agents}: {text[:120]}" if text else None
        case "tool_start":
            return f"{agents}: {data.get('name')} {_subject(data.get('args'))}".rstrip()
        case "tool_end" if data.get("status") == "error":
            text = " ".join(str(data.get("text") or "").split())
            return f"{agents}: {data.get('name')} failed: {text[:100]}"
        case "tool_end" if data.get("status") == "waiting":
            return f"{agents}: {data.get('name')} waits for an answer"
        case _:
            return None


def _subject(args: object) -> str:
    """Return the argument that says most about a call."""
    if not isinstance(args, dict):
        return ""
    for name in ("file_path", "path", "pattern", "name", "description"):
        value: object = args.get(name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(value, str) and value:
            return " ".join(value.split())[:80]
    return ""


@asynccontextmanager
async def reporting(report: Report) -> AsyncGenerator[Emit]:
    """Yield a function for events; what it is given is reported until the block ends."""
    send, receive = anyio.create_memory_object_stream[str](BACKLOG)

    def emit(event: Event) -> None:
        line = describe(event)
        if line is not None and send.statistics().current_buffer_used < BACKLOG:
            send.send_nowait(line)

    async def pump() -> None:
        counter, last = 0, "working"
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                with anyio.move_on_after(HEARTBEAT_SECONDS) as silence:
                    last = await receive.receive()
                counter += 1
                text = f"still at it: {last}" if silence.cancelled_caught else last
                await report(counter, None, text)

    refused: HarnessError | None = None
    with send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump)
            try:
                yield emit
            except HarnessError as error:  # raised again below, outside of the group's wrapping
                refused = error
            send.close()  # what is left goes out before the result
            tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS
    if refused is not None:
        raise refused
