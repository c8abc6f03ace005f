"""Agenda of a server: fires schedules and sends webhooks, if its operator turns that on."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from pydantic import JsonValue

from ...harness.errors import HarnessError, UnknownThread
from ...harness.messages.message import new_id
from ..agenda.opening import book_of, opened_agenda
from ..agenda.scheduler import NotAllowed, Scheduler
from ..agenda.schedules import Schedule, Work
from ..agenda.tables import AgendaTables
from ..auth.caller import LOCAL, Caller, current_caller
from ..auth.owned_journal import NAMES, OwnedJournal, id_of_thread, is_name
from ..auth.shared_state import open_tokens
from ..auth.tokens import TokenError, TokenRecord, Tokens
from ..mcp.offered_agents import offered_agents
from ..results import Answer, moment, unknown
from ..runs.goals import Goal
from ..settings.settings import Settings, SettingsError
from ..settings.state_dir import StateDir
from ..threads.journal_places import require_kept
from ..threads.journals import open_journal
from .running import App

__all__ = [
    "Agenda",
    "add_schedule",
    "change_schedule",
    "joined_agenda",
    "list_deliveries",
    "list_schedules",
    "test_webhook",
]


class Agenda:
    """What a server does on its own: fires schedules and sends webhooks.

    Args:
        settings: What the operator chose.
        tables: The tables beside its journal.

    Attributes:
        book: The schedules that this server fires; None if it fires none.
        counts: Counts since the server was started, by the name of a metric and by result.
    """

    def __init__(self, settings: Settings, tables: AgendaTables) -> None:
        self._tables = tables
        self.book = book_of(settings, tables) if settings.schedules else None
        self.counts: dict[str, Mapping[str, int]] = {}

    def attach(self, app: App) -> None:
        """Fire schedules and send webhooks for a server, until it stops."""
        if app.settings.current.webhooks:
            from ..agenda.outbox import Outbox
            from ..agenda.webhooks import Webhooks

            outbox = Outbox(self._tables, app.journal)
            webhooks = Webhooks(outbox, lambda: app.settings.current)
            self.counts["webhook_tries_total"] = webhooks.counts
            app.runs.figures.heard = webhooks.hear
            app.group.start_soon(webhooks.work)
        if self.book is not None:
            scheduler = Scheduler(self.book, _Starter(app))
            self.counts["schedule_times_total"] = scheduler.counts
            app.group.start_soon(scheduler.work)

    async def waiting(self) -> int:
        """Return how many deliveries of webhooks wait, of all servers.

        Raises:
            HarnessError: They cannot be read.
        """
        ((count,),) = await self._tables.run(("SELECT count(*) FROM {deliveries}", {}))
        return int(count)


@asynccontextmanager
async def joined_agenda(settings: Settings) -> AsyncGenerator[Agenda]:
    """Open the agenda of a server, until the block ends."""
    async with opened_agenda(settings) as tables:
        yield Agenda(settings, tables)


class _Starter:
    """Starts the runs of schedules on behalf of their principals; a `StartRun`."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, work: Work, key: str) -> tuple[str, str]:
        app = self._app
        caller = await self._caller(work)
        await app.shared.principals.note(caller)
        token = current_caller.set(caller)
        try:
            if app.agent.prepares:
                await app.agent.prepare()
            goal = Goal(work.goal, agent=offered_agents(app.services).chosen(work.agent))
            said = work.thread_id or None
            thread_id = said and await id_of_thread(OwnedJournal(app.journal), said)
            run_id = await app.runs.start(
                goal, thread_id=thread_id, begins=thread_id != said, key=key, on_busy="queue"
            )
            run = await app.journal.run(run_id)
        finally:
            current_caller.reset(token)
        if run is None:
            raise HarnessError(f"run {run_id} was deleted as it began.")
        return run_id, run.thread_id

    async def _caller(self, work: Work) -> Caller:
        """Return a principal with their current rights.

        The rights of OAuth users are only known from their access tokens, which are not stored.

        Raises:
            NotAllowed: None of their tokens lets them start runs any more.
        """
        if not work.principal:
            return LOCAL
        settings = self._app.settings.current
        issuer = (settings.oauth_issuer or "").rstrip("/")  # as principals have it
        of_oauth = "oauth" in settings.auth and work.principal.startswith(f"{issuer}#")
        if of_oauth or "none" in settings.auth:
            return Caller(work.principal, frozenset({"delegate"}))
        if "token" not in settings.auth:
            raise NotAllowed(
                f"principal {work.principal!r} is no user of {issuer}, so the schedule is paused. "
                f"Remove it, or add it for a principal such as '{issuer}#SUBJECT'."
            )
        try:
            async with self._tokens(settings) as tokens:
                theirs = [one for one in await tokens.all() if one.principal == work.principal]
        except TokenError as error:
            raise HarnessError(str(error)) from error
        able = [one for one in theirs if not one.is_expired and _may_delegate(one)]
        if not able:
            raise NotAllowed(
                f"principal {work.principal!r} has no token that lets them start runs, so the "
                "schedule is paused. Create one with `deep-agent-mcp token create`, then resume it."
            )
        return Caller(work.principal, frozenset({"delegate"}), _agents(able))

    def _tokens(self, settings: Settings) -> AbstractAsyncContextManager[Tokens]:
        shared = self._app.shared.tokens
        return open_tokens(settings) if shared is None else nullcontext(shared)


def _may_delegate(record: TokenRecord) -> bool:
    return bool({"delegate", "admin"} & {*record.scopes})


def _agents(records: Sequence[TokenRecord]) -> frozenset[str] | None:
    """Return all agents that these tokens allow; None for all agents."""
    if any(not one.agents for one in records):
        return None
    return frozenset(name for one in records for name in one.agents)


_SERVER = "A server started with --schedules fires it."


async def add_schedule(settings: Settings, name: str, work: Work) -> Answer:
    """Store a schedule.

    Raises:
        StateDirError, HarnessError: Nothing was stored.
    """
    if work.thread_id and not is_name(work.thread_id):  # a name begins a thread
        await _require_thread(settings, work)
    async with opened_agenda(settings) as tables:
        made = await book_of(settings, tables).add(name, work)
    text = f"Schedule {name} fires next at {_next(made)} ({work.timezone}: {work.cron}). {_SERVER}"
    return Answer(text, made.shown())


async def _require_thread(settings: Settings, work: Work) -> None:
    """Refuse a thread that does not exist.

    Raises:
        StateDirError, HarnessError: There is no such thread, or the journal cannot be read.
    """
    caller = Caller(work.principal, frozenset())
    is_owned = caller.owns(work.thread_id)
    if work.thread_id.startswith("thr_") and not is_owned:
        return  # the schedules refuse it, and say whose it is not
    require_kept(settings)
    async with open_journal(settings, StateDir(settings.state_dir)) as journal:
        runs = await journal.find_runs(thread_id=work.thread_id, limit=1)
        if is_owned and (runs or await journal.load(work.thread_id) is not None):
            return
        token = current_caller.set(caller)
        try:
            rows = await OwnedJournal(journal).threads(limit=200)
        finally:
            current_caller.reset(token)
    advice = (
        "`deep-agent-mcp threads list` shows the threads. Without --thread, each run gets a new "
        f"one; a name of {NAMES} begins one with the first run."
    )
    raise UnknownThread(unknown("thread", work.thread_id, [one.thread_id for one in rows], advice))


async def list_schedules(settings: Settings) -> Answer:
    """List the schedules of all users."""
    async with opened_agenda(settings) as tables:
        known = await book_of(settings, tables).all()
    text = "\n".join(map(_line, known)) or "There are no schedules."
    return Answer(text, {"schedules": [one.shown() for one in known]})


async def change_schedule(settings: Settings, action: str, name: str, principal: str) -> Answer:
    """Pause, resume, run or remove a schedule.

    Raises:
        HarnessError: There is none of that name, or it cannot be decrypted.
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
    return Answer(
        "\n".join(map(line, found)) or "No event waits for a webhook.", {"deliveries": data}
    )


async def test_webhook(settings: Settings, url: str) -> Answer:
    """Send a test event to a URL, once.

    Raises:
        SettingsError: There is no secret.
    """
    from ..agenda.webhooks import send

    if settings.webhook_secret is None:
        raise SettingsError(
            "webhooks are signed, and there is no secret. Nothing was sent. Name a file with "
            "--webhook-secret-file, or set DEEP_AGENT_WEBHOOK_SECRET; `deep-agent-mcp webhooks "
            "new-secret` prints one."
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
