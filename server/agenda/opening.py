"""Opens the agenda of the servers with some settings, and changes its encryption."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..replicas.sealed_values import ValueSealer, sealer_of
from ..settings.settings import Settings
from .schedules import ScheduleBook
from .tables import AgendaTables, SqliteTables

__all__ = ["book_of", "opened_agenda", "reseal_schedules"]

_FILE = "agenda.db"


def book_of(settings: Settings, tables: AgendaTables) -> ScheduleBook:
    """Return the schedules in the tables of a journal."""
    return ScheduleBook(tables, sealer_of(settings))


@asynccontextmanager
async def opened_agenda(settings: Settings) -> AsyncGenerator[AgendaTables]:
    """Open the tables beside the journal that the settings name, until the block ends."""
    tables = _tables(settings)
    try:
        yield tables
    finally:
        await tables.close()


async def reseal_schedules(settings: Settings, old: ValueSealer, new: ValueSealer) -> None:
    """Seal all schedules again.

    Args:
        settings: What the operator chose.
        old: Opens the stored schedules.
        new: Seals them again.

    Raises:
        SealError: A schedule cannot be decrypted; none was changed.
        HarnessError: The database failed.
    """
    if not _is_in_postgres(settings) and not (settings.state_dir / _FILE).exists():
        return
    async with opened_agenda(settings) as tables:
        await ScheduleBook(tables, old).reseal(new)


def _is_in_postgres(settings: Settings) -> bool:
    url = "" if settings.journal is None else settings.journal.get_secret_value()
    return url.partition(":")[0].lower() in ("postgresql", "postgres")


def _tables(settings: Settings) -> AgendaTables:
    if settings.journal is not None and _is_in_postgres(settings):
        from .postgres_tables import PostgresTables  # psycopg takes time to import

        return PostgresTables(settings.journal.get_secret_value())
    return SqliteTables(settings.state_dir / _FILE)
