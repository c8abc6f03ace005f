"""Schedules: goals that an agent gets at set times, stored for all servers.

Each time is handled by one server: it claims the schedule, starts the run under a key that contains
the time, and only then stores the next time. If it dies in between, another server finds the same
run by that key. Missed times count as one. The clock is the database's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.errors import HarnessError
from ...harness.messages.message import new_id
from ..auth.caller import Caller
from ..replicas.sealed_values import SealError, ValueSealer
from ..results import moment
from .cron import next_time, times_between
from .tables import AgendaTables, Row, Statement

__all__ = ["Claim", "Schedule", "ScheduleBook", "Work"]


ScheduleStatus: TypeAlias = Literal["active", "paused"]

_CLAIM_SECONDS: Final = 60.0
"""Seconds a server has to start a run before another server tries."""

_COLUMNS: Final = (
    "id, owner, name, status, next_at, run_at, last_at, last_run, last_error, body, {now}"
)
_DUE: Final = (
    "claimed_until <= {now} AND ((status = 'active' AND next_at <= {now}) OR run_at <= {now})"
)
_CLAIM: Final = f"""
UPDATE {{schedules}} SET claimed_until = {{now}} + :seconds
WHERE {_DUE} AND id = (
    SELECT id FROM {{schedules}} WHERE {_DUE} ORDER BY coalesce(run_at, next_at), id LIMIT 1
) RETURNING {_COLUMNS}
"""
_NEXT: Final = """
SELECT min(CASE WHEN run_at IS NOT NULL AND (status = 'paused' OR run_at < next_at) THEN run_at
    WHEN status = 'active' THEN next_at END) - {now}
FROM {schedules} WHERE claimed_until <= {now}
"""
_SETTLE: Final = """
UPDATE {schedules} SET claimed_until = 0, last_at = :at, last_run = :run, last_error = :error,
    next_at = :next, run_at = CASE WHEN run_at = :claimed THEN NULL ELSE run_at END, body = :body,
    status = CASE WHEN :ends = 1 THEN 'paused' ELSE status END
WHERE id = :id AND coalesce(next_at, 0) = :was AND claimed_until > 0
"""


@record
class Work:
    """The work that a schedule starts each time.

    Attributes:
        principal: The user on whose behalf it runs; empty for the local user.
        cron: Five cron fields.
        timezone: Their time zone.
        goal: The goal for the agent.
        agent: A subagent that gets it; empty for the main agent.
        thread_id: The thread to continue; empty for a new one each time.
        keeps_thread: Whether later times continue the thread of the first time.
    """

    principal: str
    cron: str
    timezone: str
    goal: str
    agent: str = ""
    thread_id: str = ""
    keeps_thread: bool = False

    @property
    def owner(self) -> str:
        """A digest of the principal, as in the ids of runs."""
        return Caller(self.principal, frozenset()).owner


@record
class Schedule:
    """A stored schedule.

    Attributes:
        id: Its id.
        owner: A digest of its principal.
        name: Unique among those of its principal.
        status: Whether it fires.
        work: The work it starts; None if that cannot be decrypted, which `last_error` says.
        next_at: When it fires next, by cron. All times are Unix times.
        run_at: An additional time at which it fires.
        last_at: When it fired last.
        last_run: The run that it started then.
        last_error: Why it started no run.
    """

    id: str
    owner: str
    name: str
    status: ScheduleStatus
    work: Work | None
    next_at: float | None
    run_at: float | None = None
    last_at: float | None = None
    last_run: str = ""
    last_error: str = ""

    def shown(self) -> dict[str, JsonValue]:
        """Return the schedule as JSON data, with readable times."""
        work = {} if self.work is None else asdict(self.work)
        return {
            "name": self.name,
            "status": self.status,
            **work,
            "next_at": _time(self.run_at or (self.next_at if self.status == "active" else None)),
            "last_at": _time(self.last_at),
            "last_run_id": self.last_run or None,
            "last_error": self.last_error or None,
        }


@record
class Claim:
    """A schedule that is due and that this server has claimed.

    Attributes:
        schedule: The schedule.
        due: The time that is due.
        now: The current time.
    """

    schedule: Schedule
    due: float
    now: float

    @property
    def key(self) -> str:
        """The idempotency key of the run of this time."""
        return f"schedule:{self.schedule.id}:{self.due:.3f}"

    @property
    def missed(self) -> int:
        """How many missed times this run stands for."""
        found, work = self.schedule, self.schedule.work
        if work is None or found.status == "paused" or (found.next_at or self.now) >= self.now:
            return 0
        assert found.next_at is not None
        beside = int(self.due != found.next_at)
        return beside + times_between(work.cron, work.timezone, found.next_at, self.now)


class ScheduleBook:
    """The schedules of all servers of a journal.

    Args:
        tables: The tables that hold them.
        sealer: Encrypts the work of schedules.
    """

    def __init__(self, tables: AgendaTables, sealer: ValueSealer) -> None:
        self._tables = tables
        self._sealer = sealer

    async def add(self, name: str, work: Work) -> Schedule:
        """Store a schedule.

        Raises:
            HarnessError: Its principal has a schedule of that name, its time cannot be read, or the
                thread belongs to somebody else; nothing was stored.
        """
        caller = Caller(work.principal, frozenset())
        if work.thread_id.startswith("thr_") and not caller.owns(work.thread_id):
            whose = f"principal {work.principal!r}" if work.principal else "the local user"
            raise HarnessError(
                f"thread {work.thread_id} does not belong to {whose}; nothing was stored. "
                "`deep-agent-mcp threads list` shows the threads."
            )
        next_at = next_time(work.cron, work.timezone, await self._now())
        made = Schedule(new_id("sched"), caller.owner, name, "active", work, next_at)
        insert = (
            "INSERT INTO {schedules} (id, owner, name, status, next_at, claimed_until, last_run,"
            " last_error, body) VALUES (:id, :owner, :name, 'active', :next, 0, '', '', :body)"
            " ON CONFLICT DO NOTHING RETURNING id"
        )
        values = {"id": made.id, "owner": made.owner, "name": name, "next": next_at}
        if not await self._tables.run((insert, {**values, "body": self._sealed(made.id, work)})):
            raise HarnessError(
                f"there is a schedule {name!r} already; nothing was stored. Choose another name, "
                "or remove that one first."
            )
        return made

    async def all(self, owner: str | None = None) -> Sequence[Schedule]:
        """Return the schedules, or those of one owner, by name."""
        where = "" if owner is None else " WHERE owner = :owner"
        select = f"SELECT {_COLUMNS} FROM {{schedules}}{where} ORDER BY name, id"
        rows = await self._tables.run((select, {} if owner is None else {"owner": owner}))
        return [self._read(row) for row in rows]

    async def find(self, name: str, principal: str) -> Schedule:
        """Return a principal's schedule.

        Raises:
            HarnessError: There is none of that name.
        """
        owner = Caller(principal, frozenset()).owner
        known = await self.all(owner)
        found = next((one for one in known if one.name == name), None)
        if found is None:
            names = ", ".join(one.name for one in known) or "none"
            raise HarnessError(
                f"there is no schedule {name!r}. Nothing was done. Schedules: {names}."
            )
        return found

    async def pause(self, schedule: Schedule) -> None:
        """Stop a schedule from firing."""
        update = "UPDATE {schedules} SET status = 'paused', run_at = NULL WHERE id = :id"
        await self._tables.run((update, {"id": schedule.id}))

    async def resume(self, schedule: Schedule) -> float:
        """Resume a schedule; return its next time. Times missed meanwhile are skipped."""
        work = _opened(schedule)
        next_at = next_time(work.cron, work.timezone, await self._now())
        update = "UPDATE {schedules} SET status = 'active', next_at = :next WHERE id = :id"
        await self._tables.run((update, {"id": schedule.id, "next": next_at}))
        return next_at

    async def trigger(self, schedule: Schedule) -> None:
        """Fire a schedule now, in addition to its times, even if it is paused."""
        _opened(schedule)
        update = "UPDATE {schedules} SET run_at = {now} WHERE id = :id"
        await self._tables.run((update, {"id": schedule.id}))

    async def remove(self, schedule: Schedule) -> None:
        """Delete a schedule; its runs stay."""
        await self._tables.run(("DELETE FROM {schedules} WHERE id = :id", {"id": schedule.id}))

    async def reseal(self, new: ValueSealer) -> None:
        """Seal the work of all schedules again; all of them or none.

        Raises:
            SealError: One cannot be decrypted.
            HarnessError: The database failed.
        """
        updates: list[Statement] = []
        for id_, owner, name, body in await self._tables.run(
            ("SELECT id, owner, name, body FROM {schedules}", {})
        ):
            try:
                work = self._sealer.open(bytes(body), "schedules", id_)
            except SealError as error:
                # Only the sealed part says who its principal is.
                whose = (
                    " --principal NAME`, where NAME is the user it belongs to." if owner else "`."
                )
                raise SealError(
                    f"schedule {name!r} cannot be sealed again: {error} A schedule whose key is "
                    f"lost can be removed with `deep-agent-mcp schedules remove "
                    f"{shlex.quote(name)}{whose}"
                ) from error
            values = {"id": id_, "was": body, "body": new.seal(work, "schedules", id_)}
            # A schedule that a command has changed meanwhile has the newest key already.
            updates.append(
                ("UPDATE {schedules} SET body = :body WHERE id = :id AND body = :was", values)
            )
        if updates:
            await self._tables.run(*updates)
        await self._tables.vacuum()

    # --- used by the servers that fire them ---------------------------------------------------

    async def claim(self) -> Claim | None:
        """Claim a schedule that is due, so that no other server fires it; None if none is."""
        rows = await self._tables.run((_CLAIM, {"seconds": _CLAIM_SECONDS}))
        if not rows:
            return None
        found, now = self._read(rows[0]), float(rows[0][-1])
        run_at = found.run_at
        due = run_at if run_at is not None and run_at <= now else found.next_at
        assert due is not None
        return Claim(found, due, now)

    async def settle(
        self, claim: Claim, run_id: str, thread_id: str = "", *, error: str = "", ends: bool = False
    ) -> None:
        """Store the result of a claim, and the next time of the schedule.

        Args:
            claim: The claim.
            run_id: The run; empty if none was started.
            thread_id: Its thread.
            error: Why no run was started.
            ends: Whether to pause the schedule.
        """
        schedule, work = claim.schedule, _opened(claim.schedule)
        following = schedule.next_at
        if following is None or following <= claim.now:
            following = next_time(work.cron, work.timezone, claim.now)
        if work.keeps_thread and thread_id and not work.thread_id:
            work = replace(work, thread_id=thread_id)
        values = {
            "id": schedule.id,
            "at": claim.due,
            "run": run_id or schedule.last_run,
            "error": _text(error),
            "next": following,
            "was": schedule.next_at or 0.0,
            "claimed": schedule.run_at if claim.due == schedule.run_at else None,
            "ends": int(ends),
            "body": self._sealed(schedule.id, work),
        }
        await self._tables.run((_SETTLE, values))

    async def postpone(self, claim: Claim, seconds: float, error: str) -> None:
        """Release a claim, so that it is tried again later."""
        update = (
            "UPDATE {schedules} SET claimed_until = {now} + :seconds, last_error = :error"
            " WHERE id = :id"
        )
        values = {"id": claim.schedule.id, "seconds": seconds, "error": _text(error)}
        await self._tables.run((update, values))

    async def seconds_to_next(self) -> float | None:
        """Return the seconds until the next schedule fires; None if none does."""
        ((seconds,),) = await self._tables.run((_NEXT, {}))
        return None if seconds is None else float(seconds)

    # --- rows ----------------------------------------------------------------------------------

    async def _now(self) -> float:
        ((now,),) = await self._tables.run(("SELECT {now}", {}))
        return float(now)

    def _sealed(self, id_: str, work: Work) -> bytes:
        return self._sealer.seal(json.dumps(asdict(work)).encode(), "schedules", id_)

    def _read(self, row: Row) -> Schedule:
        id_, owner, name, status, next_at, run_at, last_at, last_run, error, body, _ = row
        work: Work | None = None
        try:
            fields = json.loads(self._sealer.open(bytes(body), "schedules", id_))
            work = Work(**cast("Mapping[str, Any]", fields))
        except (SealError, TypeError, ValueError) as problem:
            error = str(problem)
        return Schedule(id_, owner, name, status, work, next_at, run_at, last_at, last_run, error)


def _opened(schedule: Schedule) -> Work:
    if schedule.work is None:
        raise HarnessError(
            f"schedule {schedule.name!r} cannot be opened: {schedule.last_error} Nothing was done. "
            "Remove it and add it again."
        )
    return schedule.work


def _text(error: str) -> str:
    return error.encode(errors="replace").decode().replace("\0", "")[:1_000]


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else moment(seconds)
