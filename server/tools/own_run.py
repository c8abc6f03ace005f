"""Own run: ends the run a call started when the client's user cancels the call."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from ...harness.errors import HarnessError
from ..mcp.requests import Context, Services

__all__ = ["OwnRun", "own_run"]

END_SECONDS = 10.0
"""How long the end of a connection may wait for the end of a run."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OwnRun:
    """The run a call has started.

    Attributes:
        run_id: The run; None while there is none, or if another call has started it.
    """

    run_id: str | None = None

    def began(self, run_id: str) -> None:
        """Note that the call has started a run."""
        self.run_id = run_id


@asynccontextmanager
async def own_run(ctx: Context, services: Services) -> AsyncGenerator[OwnRun]:
    """Yield what takes the run a call starts, and end that run if the call is cancelled.

    A call that was given up for its length, or whose connection was lost, leaves its run alone.
    """
    own = OwnRun()
    with services.cancelled.serving(ctx) as request:
        try:
            yield own
        except anyio.get_cancelled_exc_class():
            if own.run_id is not None:
                # Here and not in the background, so that a server that is closing waits for it.
                with anyio.move_on_after(END_SECONDS, shield=True):
                    if await request.is_cancelled_by_user():
                        await _end(services, own.run_id)
            raise


async def _end(services: Services, run_id: str) -> None:
    try:
        await services.runs.cancel(run_id, "the call that started it was cancelled")
    except HarnessError as error:
        logger.warning("run %s was not cancelled with the call that started it: %s", run_id, error)
