"""Outbox of webhooks: events that are still to be sent, stored for all servers.

A run is watched from its start. When it pauses or ends, one delivery for each URL is stored in the
transaction that notes the change. The server that executes the run does that at once; all servers
check now and then for runs that ended in another way, or whose server has died.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ...harness._internal.records import record
from ...harness.checkpoint.base import ENDED, Checkpointer, Run
from ..results import moment
from .tables import AgendaTables, Statement

__all__ = ["Delivery", "Outbox", "event_body", "event_id", "waiting"]

STOPPED: Final = ("needs_approval", "paused", *ENDED)

DELAYS: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Pauses between attempts of a delivery, in seconds; about three days in all."""

_CLAIM_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 30.0
_AT_ONCE: Final = 100

_COLUMNS: Final = "id, url, body, attempts, next_at, last_error, {now}"
_DUE: Final = "claimed_until <= {now} AND next_at <= {now}"
_CLAIM: Final = f"""
UPDATE {{deliveries}} SET claimed_until = {{now}} + :seconds, attempts = attempts + 1
WHERE {_DUE} AND (id, url) = (
    SELECT id, url FROM {{deliveries}} WHERE {_DUE} ORDER BY next_at, id, url LIMIT 1
) RETURNING {_COLUMNS}
"""
_TELL: Final = """
INSERT INTO {deliveries} (id, url, body, attempts, next_at, claimed_until, last_error)
SELECT :id, :url, :body, 0, {now}, 0, '' FROM {watched} WHERE run_id = :run AND told <> :told
ON CONFLICT DO NOTHING
"""
_LOOK: Final = """
UPDATE {watched} SET looked_at = {now} WHERE run_id IN (
    SELECT run_id FROM {watched} WHERE looked_at < {now} - :age ORDER BY looked_at LIMIT :limit
) RETURNING run_id, told
"""


@record
class Delivery:
    """One event to send to one URL.

    Attributes:
        id: Id of the event.
        url: Where it is sent.
        body: The body of the request.
        attempts: How many attempts there were, this one included.
        due_at: Unix time of the next attempt.
        error: The error of the last attempt.
        now: The current time of the database.
    """

    id: str
    url: str
    body: str
    attempts: int
    due_at: float
    error: str
    now: float


class Outbox:
    """Events that are still to be sent to webhooks.

    Args:
        tables: The tables that hold them.
        journal: Gives the status of runs.
    """

    def __init__(self, tables: AgendaTables, journal: Checkpointer) -> None:
        self._tables = tables
        self._journal = journal

    async def watch(self, run_id: str) -> None:
        """Watch a run that starts or continues."""
        insert = (
            "INSERT INTO {watched} (run_id, told, looked_at) VALUES (:run, '', {now})"
            " ON CONFLICT (run_id) DO UPDATE SET looked_at = {now}"
        )
        await self._tables.run((insert, {"run": run_id}))

    async def stopped(self, run: Run, urls: Sequence[str]) -> None:
        """Store the deliveries for a run that has paused or ended, once."""
        if run.status not in STOPPED:
            return
        told = f"{run.attempt} {run.status}"
        values = {"id": event_id(run), "body": event_body(run), "run": run.id, "told": told}
        statements: list[Statement] = [(_TELL, {**values, "url": url}) for url in urls]
        if run.status in ENDED:
            statements.append(("DELETE FROM {watched} WHERE run_id = :run", values))
        else:
            update = "UPDATE {watched} SET told = :told WHERE run_id = :run"
            statements.append((update, values))
        await self._tables.run(*statements)

    async def look(self, urls: Sequence[str]) -> None:
        """Check the runs that no server has checked for a while."""
        rows = await self._tables.run((_LOOK, {"age": _LOOK_SECONDS, "limit": _AT_ONCE}))
        for run_id, told in rows:
            run = await self._journal.run(run_id)
            if run is None:
                await self._tables.run(
                    ("DELETE FROM {watched} WHERE run_id = :run", {"run": run_id})
                )
            elif f"{run.attempt} {run.status}" != told:
                await self.stopped(run, urls)

    # --- deliveries ----------------------------------------------------------------------------

    async def claim(self) -> Delivery | None:
        """Claim a delivery that is due, so that no other server sends it; None if none is."""
        rows = await self._tables.run((_CLAIM, {"seconds": _CLAIM_SECONDS}))
        return Delivery(*rows[0]) if rows else None

    async def delivered(self, delivery: Delivery) -> None:
        """Delete a delivery that has arrived, or is given up."""
        delete = "DELETE FROM {deliveries} WHERE id = :id AND url = :url"
        await self._tables.run((delete, {"id": delivery.id, "url": delivery.url}))

    async def failed(self, delivery: Delivery, error: str, wait: float | None = None) -> bool:
        """Store a failed attempt; return whether there will be another one.

        Args:
            delivery: The delivery.
            error: Why it failed.
            wait: Seconds that the receiver asked us to wait.
        """
        if delivery.attempts > len(DELAYS):
            await self.delivered(delivery)
            return False
        delay = DELAYS[delivery.attempts - 1] * random.uniform(0.8, 1.2)
        delay = max(delay, min(wait or 0.0, DELAYS[-1]))
        update = (
            "UPDATE {deliveries} SET claimed_until = 0, next_at = {now} + :delay,"
            " last_error = :error WHERE id = :id AND url = :url"
        )
        values = {"id": delivery.id, "url": delivery.url, "delay": delay, "error": error[:500]}
        await self._tables.run((update, values))
        return True


async def waiting(tables: AgendaTables) -> Sequence[Delivery]:
    """Return the waiting deliveries, the next one first."""
    select = f"SELECT {_COLUMNS} FROM {{deliveries}} ORDER BY next_at, id, url"
    return [Delivery(*row) for row in await tables.run((select, {}))]


def event_id(run: Run) -> str:
    """Return the id of an event of a run; it is the same on every server."""
    text = f"{run.id}\0{run.attempt}\0{run.status}"
    return f"evt_{blake2b(text.encode(), digest_size=16).hexdigest()}"


def event_body(run: Run) -> str:
    """Return the body to send about a run; it contains none of the run's content."""
    data = {"run_id": run.id, "thread_id": run.thread_id, "status": run.status}
    event = {"type": f"run.{run.status}", "timestamp": moment(run.updated_at), "data": data}
    return json.dumps(event, separators=(",", ":"))
