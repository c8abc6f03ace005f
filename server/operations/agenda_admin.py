"""Agenda administration: schedules and webhooks on the command line, while servers run."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from pydantic import JsonValue

from ...harness.errors import HarnessError
from ...harness.messages.message import new_id
from ..agenda.schedules import Schedule, Work
from ..results import Answer, moment
from ..settings.settings import Settings
from .agenda import book_of, opened_agenda

__all__ = [
    "add_schedule",
    "change_schedule",
    "list_deliveries",
    "list_schedules",
    "test_webhook",
]

_SERVER = "A server started with --schedules fires it."


async def add_schedule(settings: Settings, name: str, work: Work) -> Answer:
    """Store a schedule.

    Raises:
        HarnessError: Nothing was stored.
    """
    async with opened_agenda(settings) as tables:
        made = await book_of(settings, tables).add(name, work)
    text = f"Schedule {name} fires next at {_next(made)} ({work.timezone}: {work.cron}). {_SERVER}"
    return Answer(text, made.shown())


async def list_schedules(settings: Settings) -> Answer:
    """List the schedules of everybody."""
    async with opened_agenda(settings) as tables:
        known = await book_of(settings, tables).all()
    text = "\n".join(map(_line, known)) or "There are no schedules."
    return Answer(text, {"schedules": [one.shown() for one in known]})


async def change_schedule(settings: Settings, action: str, name: str, principal: str) -> Answer:
    """Pause, resume, run or remove a schedule.

    Raises:
        HarnessError: There is none of that name, or it cannot be opened.
    """
    async with opened_agenda(settings) as tables:
        book = book_of(settings, tables)
        found = await book.find(name, principal)
        match action:
            case "pause":
                await book.pause(found)
                text = f"Schedule {name} is paused."
            case "resume":
                at = await book.resume(found)
                text = f"Schedule {name} is active. It fires next at {moment(at)}."
            case "run":
                await book.trigger(found)
                text = f"Schedule {name} fires now. {_SERVER}"
            case _:
                await book.remove(found)
                text = f"Schedule {name} is removed; its runs stay."
    return Answer(text, {"name": name, "done": action})


def _next(schedule: Schedule) -> str:
    at = schedule.run_at or schedule.next_at
    return moment(at) if at is not None else "no time"


def _line(schedule: Schedule) -> str:
    work = schedule.work
    when = f"next {_next(schedule)}" if schedule.status == "active" else "paused"
    lines = [f"{schedule.name}  {when}"]
    if work is not None:
        whose = f"  for {work.principal}" if work.principal else ""
        lines[0] += f"  {work.cron} ({work.timezone}){whose}"
        where = f"  thread {work.thread_id}" if work.thread_id else ""
        agent = f"  agent {work.agent}" if work.agent else ""
        lines.append(f"    {' '.join(work.goal.split())[:200]}{agent}{where}")
    if schedule.last_run:
        at = moment(schedule.last_at) if schedule.last_at is not None else ""
        lines.append(f"    last {at}: run {schedule.last_run}")
    if schedule.last_error:
        lines.append(f"    {schedule.last_error}")
    return "\n".join(lines)


async def list_deliveries(settings: Settings) -> Answer:
    """List the events that webhooks have not received yet."""
    from ..agenda.outbox import Delivery, waiting

    def line(one: Delivery) -> str:
        problem = f": {one.error}" if one.error else ""
        return f"{one.id}  {one.url}  next {moment(one.due_at)}, tried {one.attempts}{problem}"

    async with opened_agenda(settings) as tables:
        found: Sequence[Delivery] = await waiting(tables)
    data: list[JsonValue] = [
        {
            "id": one.id,
            "url": one.url,
            "event": json.loads(one.body),
            "attempts": one.attempts,
            "next_at": moment(one.due_at),
            "last_error": one.error or None,
        }
        for one in found
    ]
    return Answer("\n".join(map(line, found)) or "Nothing waits.", {"deliveries": data})


async def test_webhook(settings: Settings, url: str) -> Answer:
    """Send a test event to a URL, once.

    Raises:
        HarnessError: There is no secret.
    """
    from ..agenda.webhooks import send

    if settings.webhook_secret is None:
        raise HarnessError(
            "webhooks are signed, and there is no secret. Name a file with --webhook-secret-file, "
            "or set DEEP_AGENT_WEBHOOK_SECRET; `deep-agent-mcp webhooks new-secret` prints one."
        )
    id_ = new_id("evt_test")
    event: dict[str, JsonValue] = {
        "type": "webhook.test",
        "timestamp": moment(time.time()),
        "data": {},
    }
    answer = await send(settings, url, id_, json.dumps(event, separators=(",", ":")))
    data: dict[str, JsonValue] = {"id": id_, "url": url, "status": answer.status or None}
    if answer.problem:
        return Answer(f"The event was not received: {answer.problem}.", data, failed=True)
    return Answer(f"{url} answered {answer.status} to event {id_}.", data)
