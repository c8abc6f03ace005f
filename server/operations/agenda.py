"""Agenda of a server: fires schedules and sends webhooks, if its operator turns that on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from ...harness.errors import HarnessError
from ..agenda.scheduler import NotAllowed, Scheduler
from ..agenda.schedules import ScheduleBook, Work
from ..agenda.tables import AgendaTables
from ..auth.caller import LOCAL, Caller, current_caller
from ..auth.shared_state import open_tokens
from ..auth.tokens import TokenError, TokenRecord, Tokens
from ..mcp.offered_agents import offered_agents
from ..replicas.sealed_values import sealer_of
from ..runs.goals import Goal
from ..settings.settings import Settings
from .running import App

__all__ = ["Agenda", "book_of", "joined_agenda", "opened_agenda"]


def open_tables(settings: Settings) -> AgendaTables:
    """Return the tables of the servers with these settings."""
    url = "" if settings.journal is None else settings.journal.get_secret_value()
    if url.partition(":")[0].lower() in ("postgresql", "postgres"):
        from ..agenda.postgres_tables import PostgresTables  # psycopg takes time to import

        return PostgresTables(url)
    from ..agenda.tables import SqliteTables

    return SqliteTables(settings.state_dir / "agenda.db")


def book_of(settings: Settings, tables: AgendaTables) -> ScheduleBook:
    """Return the schedules in the tables of a journal."""
    return ScheduleBook(tables, sealer_of(settings))


@asynccontextmanager
async def opened_agenda(settings: Settings) -> AsyncGenerator[AgendaTables]:
    """Open the tables beside the journal that the settings name, until the block ends."""
    tables = open_tables(settings)
    try:
        yield tables
    finally:
        await tables.close()


class Agenda:
    """What a server does by itself.

    Args:
        settings: What the operator chose.
        tables: The tables beside its journal.

    Attributes:
        book: The schedules that this server fires; None if it fires none.
        counts: What it has done since it was started, by the name of a metric and by result.
    """

    def __init__(self, settings: Settings, tables: AgendaTables) -> None:
        self._tables = tables
        self.book = book_of(settings, tables) if settings.schedules else None
        self.counts: dict[str, Mapping[str, int]] = {}

    def attach(self, app: App) -> None:
        """Fire schedules and tell webhooks for a server, until it stops."""
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
        """Return how many calls of webhooks wait, of all servers.

        Raises:
            HarnessError: They cannot be read.
        """
        ((count,),) = await self._tables.run(("SELECT count(*) FROM {deliveries}", {}))
        return int(count)


@asynccontextmanager
async def joined_agenda(settings: Settings) -> AsyncGenerator[Agenda]:
    """Open what a server does by itself, until the block ends."""
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
            thread_id = work.thread_id or None
            run_id = await app.runs.start(goal, thread_id=thread_id, key=key, on_busy="queue")
            run = await app.journal.run(run_id)
        finally:
            current_caller.reset(token)
        if run is None:
            raise HarnessError(f"run {run_id} was deleted as it began.")
        return run_id, run.thread_id

    async def _caller(self, work: Work) -> Caller:
        """Return a principal as they may call now.

        Of users of an OAuth server nothing is known but what their access tokens say, and nobody
        keeps those.

        Raises:
            NotAllowed: None of their tokens lets them start runs any more.
        """
        if not work.principal:
            return LOCAL
        settings = self._app.settings.current
        of_oauth = "oauth" in settings.auth and work.principal.startswith(
            f"{settings.oauth_issuer}#"
        )
        if of_oauth or "none" in settings.auth:
            return Caller(work.principal, frozenset({"delegate"}))
        if "token" not in settings.auth:
            raise NotAllowed(
                f"principal {work.principal!r} is no user of {settings.oauth_issuer}, so the "
                "schedule is paused. Remove it, or add it for a principal such as "
                f"'{settings.oauth_issuer}#SUBJECT'."
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
    """Return the agents that some tokens are bound to together; None for all."""
    if any(not one.agents for one in records):
        return None
    return frozenset(name for one in records for name in one.agents)
