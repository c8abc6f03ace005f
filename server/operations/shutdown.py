"""End of a server that several clients use: runs finish their step, and every request is answered.

In order: no more work is started; each run finishes its step and is handed over; whoever waits for
a run gets the answer that it continues; listen streams are closed; answers get a moment to be sent.
Then the transport may close.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from ..mcp.requests import Services

__all__ = ["shut_down"]

ANSWER_SECONDS = 2.0
"""How long the last requests may take to be answered."""

SEND_SECONDS = 0.1
"""How long what was answered may take to be sent."""


async def shut_down(
    services: Services, close_streams: Callable[[], None], seconds: float, at_once: anyio.Event
) -> None:
    """Bring a server to where its transport may close.

    Args:
        services: Its runs and requests.
        close_streams: Ends the listen streams.
        seconds: How long runs may take to finish their step.
        at_once: Set when they may take no longer.
    """
    async with anyio.create_task_group() as group:
        group.start_soon(_cut_short, at_once, group.cancel_scope)
        await services.runs.drain(seconds)
        group.cancel_scope.cancel()
    services.runs.stopping.release()
    services.requests.close()
    close_streams()
    if services.in_flight.calls + services.in_flight.streams:
        with anyio.move_on_after(ANSWER_SECONDS):
            await services.in_flight.answered()
        await anyio.sleep(SEND_SECONDS)


async def _cut_short(at_once: anyio.Event, drain: anyio.CancelScope) -> None:
    await at_once.wait()
    drain.cancel()
