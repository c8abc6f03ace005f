"""Outbox of webhooks: what is still to be sent, stored for all servers.

A run is watched from its beginning. When it pauses or ends, one delivery for each URL is stored in
the transaction that notes it. Whoever carries a run does that at once; servers look now and then
for runs that were ended otherwise, or whose server has died.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ...harness._internal.records import record
from ...harness.checkpoint.base import Checkpointer, Run
from ..results import moment
from .tables import AgendaTables, Statement

__all__ = ["Delivery", "Outbox", "event_body", "event_id", "waiting"]

STOPPED: Final = ("needs_approval", "paused", "done", "failed", "cancelled")
_ENDED: Final = ("done", "failed", "cancelled")

DELAYS: Final = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds after which a delivery is tried again, about three days in all."""

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
    """One event for one URL.

    Attributes:
        id: Of the event.
        url: Where it goes.
        body: What is sent.
        attempts: How often it was tried, this time included.
        due_at: When it is tried next, by Unix time.
        error: What the last try met.
        now: The time it is, by the database.
    """

    id: str
    url: str
    body: str
    attempts: int
    due_at: float
    error: str
    now: float


class Outbox:
    """What is still to be sent to webhooks.

    Args:
        tables: Where it is.
        journal: Says how runs stand.
    """

    def __init__(self, tables: AgendaTables, journal: Checkpointer) -> None:
        self._tables = tables
        self._journal = journal

    async def watch(self, run_id: str) -> None:
        """Watch a run that begins or continues."""
        insert = (
            "INSERT INTO {watched} (run_id, told, looked_at) VALUES (:run, '', {now})"
            " ON CONFLICT (run_id) DO UPDATE SET looked_at = {now}"
        )
        await self._tables.run((insert, {"run": run_id}))

    async def stopped(self, run: Run, urls: Sequence[str]) -> None:
        """Store, once, what is to be sent about a run that has paused or ended."""
        if run.status not in STOPPED:
            return
        told = f"{run.attempt} {run.status}"
        values = {"id": event_id(run), "body": event_body(run), "run": run.id, "told": told}
        statements: list[Statement] = [(_TELL, {**values, "url": url}) for url in urls]
        if run.status in _ENDED:
            statements.append(("DELETE FROM {watched} WHERE run_id = :run", values))
        else:
            update = "UPDATE {watched} SET told = :told WHERE run_id = :run"
            statements.append((update, values))
        await self._tables.run(*statements)

    async def look(self, urls: Sequence[str]) -> None:
        """Look at runs that nobody has looked at for a while."""
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
        """Take a delivery whose time has come, so that no other server does; None if none has."""
        rows = await self._tables.run((_CLAIM, {"seconds": _CLAIM_SECONDS}))
        return Delivery(*rows[0]) if rows else None

    async def delivered(self, delivery: Delivery) -> None:
        """Forget a delivery that has arrived, or is given up."""
        delete = "DELETE FROM {deliveries} WHERE id = :id AND url = :url"
        await self._tables.run((delete, {"id": delivery.id, "url": delivery.url}))

    async def failed(self, delivery: Delivery, error: str, wait: float | None = None) -> bool:
        """Store that a try has failed; return whether there will be another one.

        Args:
            delivery: The delivery.
            error: Why.
            wait: Seconds that the receiver has asked for.
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
    """Return what waits to be delivered, the next one first."""
    select = f"SELECT {_COLUMNS} FROM {{deliveries}} ORDER BY next_at, id, url"
    return [Delivery(*row) for row in await tables.run((select, {}))]


def event_id(run: Run) -> str:
    """Return the id of what has happened to a run; the same on every server."""
    text = f"{run.id}\0{run.attempt}\0{run.status}"
    return f"evt_{blake2b(text.encode(), digest_size=16).hexdigest()}"


def event_body(run: Run) -> str:
    """Return what is sent about a run: nothing of what it is about."""
    data = {"run_id": run.id, "thread_id": run.thread_id, "status": run.status}
    event = {"type": f"run.{run.status}", "timestamp": moment(run.updated_at), "data": data}
    return json.dumps(event, separators=(",", ":"))
