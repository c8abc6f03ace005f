"""Waiting for a run on behalf of a call, and putting the run's questions to the client."""

from __future__ import annotations

import json
from typing import cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolRequestParams, InputRequiredResult
from pydantic import ValidationError

from harness.errors import HarnessError
from server import approvals
from server.progress import reporting
from server.runs import Snapshot
from server.services import Context, Services

__all__ = ["resumed_run", "settle"]

LIVE_ANSWER_SECONDS = 600.0
"""How long a person may think while the client's call stays open."""


def resumed_run(params: CallToolRequestParams) -> str | None:
    """Return the run that a repeated call goes on with, or None for a first call.

    The state is the server's own: the SDK has verified its seal.
    """
    if params.request_state is None:
        return None
    return cast("str", json.loads(params.request_state)["run_id"])


async def settle(
    ctx: Context,
    services: Services,
    params: CallToolRequestParams,
    run_id: str,
    seconds: float,
) -> Snapshot | InputRequiredResult:
    """Wait until a run pauses or ends, or the time is over; ask the client what the run asks.

    Raises:
        HarnessError: The run cannot be waited for, or an answer does not fit.
    """
    asking = approvals.way_to_ask(ctx)
    repeated = params.request_state is not None and asking != "none"
    if repeated and not await _take_responses(services, params, run_id):
        asking = "none"
    deadline = anyio.current_time() + seconds
    async with reporting(ctx.session.report_progress) as emit:
        while True:
            left = max(0.0, deadline - anyio.current_time())
            snapshot = await services.runs.wait(run_id, left, emit)
            if not snapshot.questions or asking == "none":
                return snapshot
            if asking == "retry":
                return approvals.input_required(snapshot.questions, json.dumps({"run_id": run_id}))
            if not await _ask_now(ctx, services, snapshot):
                asking = "none"
            deadline = anyio.current_time() + seconds


async def _take_responses(services: Services, params: CallToolRequestParams, run_id: str) -> bool:
    """Store what a repeated call brings; return whether everything was decided."""
    snapshot = await services.runs.snapshot(run_id)
    if not snapshot.questions:
        return True
    found = approvals.decisions(snapshot.questions, params.input_responses or {})
    if found.answers:
        await services.runs.reply(run_id, found.answers)
    return not found.open


async def _ask_now(ctx: Context, services: Services, snapshot: Snapshot) -> bool:
    """Ask over the open connection; return whether everything was decided."""
    found = approvals.Decisions(open=[one.id for one in snapshot.questions])
    with anyio.move_on_after(LIVE_ANSWER_SECONDS):
        try:
            found = await approvals.ask_live(ctx, snapshot.questions)
        except (MCPError, ValidationError):  # declared, but not able to; `reply` is left
            return False
    if not found.answers:
        return False
    try:
        await services.runs.reply(snapshot.run.id, found.answers)
    except HarnessError:  # the form was filled in wrongly; the question stays open
        return False
    return not found.open
