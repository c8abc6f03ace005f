"""Listing of the replicas of a journal, for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic import JsonValue

from ...harness.checkpoint.postgres.survey import JournalSurvey
from ..replicas.census import Census, Replica, census_of
from ..replicas.database import journal_schema, open_database
from ..results import Answer
from ..settings.settings import Settings
from ..threads.journals import journal_beside_servers

__all__ = ["list_replicas"]

_SHOWN = 20
"""The most runs to list for one replica."""


async def list_replicas(settings: Settings) -> Answer:
    """Return the replicas that share the journal of the settings, and their runs.

    Args:
        settings: They say that replicas use the journal.

    Raises:
        StateDirError, HarnessError: As for `journal_beside_servers`.
    """
    async with journal_beside_servers(settings):  # so the journal's tables exist
        assert settings.journal is not None
        url = settings.journal.get_secret_value()
        database = open_database(url, connections=1)
        try:
            census = await census_of(database)
            survey = JournalSurvey(database, journal_schema(url))
            carried = await survey.owners()
            queued = sum((await survey.queued_owners()).values())
            runs = {
                owner: await survey.running(owner, limit=_SHOWN)
                for owner in carried
                if owner is not None
            }
        finally:
            await database.close()
    left = sum(n for owner, n in carried.items() if owner is None or census.is_dead(owner))
    return _answer(census, carried, runs, left, queued)


def _answer(
    census: Census,
    carried: Mapping[str | None, int],
    runs: Mapping[str, Sequence[str]],
    left: int,
    queued: int,
) -> Answer:
    every = sorted(census.replicas.values(), key=lambda one: (one.started_at, one.id))
    facts: list[JsonValue] = []
    lines: list[str] = []
    for one in every:
        state = _state(census, one)
        count, named = carried.get(one.id, 0), runs.get(one.id, ())
        since = datetime.fromtimestamp(one.started_at, UTC).isoformat(timespec="seconds")
        facts.append(
            {
                "id": one.id,
                "host": one.host,
                "version": one.version,
                "since": since,
                "state": state,
                "silent_seconds": round(one.silent, 1),
                "runs": count,
                "run_ids": [*named],
            }
        )
        lines.append(
            f"- {one.id} on {one.host}: {state}, version {one.version}, since {since}, "
            f"runs: {', '.join(named) or 'none'}{', …' if count > len(named) else ''}"
        )
    if left:
        lines.append(f"Runs that wait for a replica to continue them: {left}.")
    if queued:
        lines.append(f"Queued runs: {queued}.")
    text = "\n".join(lines if every else ["No replica uses this journal.", *lines])
    return Answer(text, {"replicas": facts, "left_runs": left, "queued_runs": queued})


def _state(census: Census, one: Replica) -> str:
    if census.is_dead(one.id):
        return "dead"
    return "draining" if one.draining else "working"
