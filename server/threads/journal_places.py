"""Journal places: a file in the state directory, or the URL in the setting `journal`."""

from __future__ import annotations

import logging
import platform
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio
import anyio.to_thread

from ...harness._internal.concurrency import raising_one
from ...harness.agent_file.places import (
    open_checkpointer,
    scheme_of,
    shown_place,
    split_database_url,
)
from ...harness.checkpoint.base import Checkpointer
from ...harness.checkpoint.lease import Claimable, Holder, Lease
from ...harness.checkpoint.memory import MemoryCheckpointer
from ...harness.databases import reason_of
from ...harness.errors import CheckpointError, LeaseLost
from ..settings.settings import Settings
from ..settings.state_dir import StateDir, StateDirError

if TYPE_CHECKING:
    from ...harness.checkpoint.sqlite import SqliteCheckpointer

__all__ = [
    "journal_at",
    "journal_file",
    "journal_name",
    "leased",
    "require_kept",
    "require_unleased",
    "shared",
]

logger = logging.getLogger(__name__)

REPLICA, COMMAND = "replica", "command"
"""The name of the place where servers share a journal."""

RENEW_SECONDS = 5.0
WAIT_SECONDS = 2.0
"""Seconds to wait at startup for the lease of a process that has just ended."""
_PAUSE = 0.1


def journal_at(settings: Settings, owner: str | None = None) -> Checkpointer:
    """Return the journal named in the setting `journal`, without opening it.

    Args:
        settings: What the operator chose.
        owner: Our id. Replicas name their connections after it, so that others can end them.

    Raises:
        AgentBuildError: An extra is missing.
    """
    assert settings.journal is not None
    url = settings.journal.get_secret_value()
    if settings.replicas and owner is not None:
        from ...harness.checkpoint.postgres.survey import connection_name

        url += f"{'&' if '?' in url else '?'}application_name={quote(connection_name(owner))}"
    return open_checkpointer(url)


def journal_file(settings: Settings) -> Path | None:
    """Return the file of the journal; None if it is not a file."""
    if settings.journal is None:
        return StateDir(settings.state_dir).journal
    journal = _as_file(settings)
    return None if journal is None else journal.path


def _as_file(settings: Settings) -> SqliteCheckpointer | None:
    from ...harness.checkpoint.sqlite import SqliteCheckpointer

    assert settings.journal is not None
    if scheme_of(settings.journal.get_secret_value()) != "sqlite":
        return None
    journal = journal_at(settings)
    assert isinstance(journal, SqliteCheckpointer)
    return journal


def journal_name(settings: Settings) -> str:
    """Return the journal's place without secrets, to show it."""
    if settings.journal is None:
        return str(StateDir(settings.state_dir).journal)
    url = settings.journal.get_secret_value()
    return f"{url.partition(':')[0]}:…" if scheme_of(url) is None else shown_place(url)


def require_kept(settings: Settings) -> None:
    """Refuse a journal that does not exist, unless it is in a database, where it is created.

    Raises:
        StateDirError: There is no journal.
    """
    file = journal_file(settings)
    if file is not None and not file.exists():
        raise StateDirError(
            f"there are no threads: there is no journal {file}. Nothing was created. Name the "
            "server's journal with --state-dir DIR or DEEP_AGENT_STATE_DIR, or with --journal URL "
            "or DEEP_AGENT_JOURNAL, or start the server once."
        )
    if settings.journal and scheme_of(settings.journal.get_secret_value()) == "memory":
        raise StateDirError(
            "the journal is in the memory of the server (setting 'journal' = memory:), where no "
            "other program can read it. Nothing was done."
        )


@asynccontextmanager
async def leased(
    journal: Checkpointer, name: str, state: StateDir, owner: str, *, beside: bool = False
) -> AsyncGenerator[None]:
    """Keep other servers from using a journal outside the state directory.

    Args:
        journal: The journal, which need not be open yet.
        name: Its place, for messages.
        state: The state directory, which we have claimed.
        owner: Our id in it.
        beside: Whether we may work beside a server of the same state directory.

    Raises:
        CheckpointError: Another server uses the journal, or its database cannot be reached.
    """
    if not isinstance(journal, Claimable):
        if not isinstance(journal, MemoryCheckpointer):
            logger.warning(
                "the journal %s cannot tell whether another server uses it. Let only one do so.",
                name,
            )
        yield
        return
    holder = _us(state, owner)
    lease, place = journal.lease(holder), holder.place
    other = await _acquired(lease, state, place, beside, home=_home(journal, state))
    if other is not None:
        with suppress(CheckpointError):
            await lease.release()
        if beside and _is_ours(other, state, place):
            yield
            return
        raise _taken(name, other)
    try:
        async with raising_one(), anyio.create_task_group() as group:
            group.start_soon(_renew, lease, name)
            yield
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True), suppress(CheckpointError):
            await lease.release()


async def require_unleased(journal: SqliteCheckpointer, state: StateDir, owner: str) -> None:
    """Refuse the journal of our state directory if a server with another one uses it.

    Servers of one state directory know each other, so they share its journal without a lease.

    Args:
        journal: The journal.
        state: The state directory, which we have claimed.
        owner: Our id in it.

    Raises:
        CheckpointError: Such a server uses the journal.
    """
    holder = _us(state, owner)
    lease = journal.lease(holder)
    other = await _acquired(lease, state, holder.place, beside=True)
    await lease.release()
    if other is not None and not _is_ours(other, state, holder.place):
        raise _taken(journal.place, other)


def _us(state: StateDir, owner: str) -> Holder:
    place = blake2b(
        f"{platform.node()}\0{state.path.resolve()}".encode(), digest_size=4
    ).hexdigest()
    return Holder(owner, platform.node(), place)


def _home(journal: Claimable, state: StateDir) -> StateDir | None:
    """Return the state directory whose journal this is, if it is another one than ours."""
    from ...harness.checkpoint.sqlite import SqliteCheckpointer

    if not isinstance(journal, SqliteCheckpointer):
        return None
    path = journal.path.resolve()
    home = StateDir(path.parent)
    return home if home.journal == path and home.path != state.path.resolve() else None


def _is_in_use(home: StateDir) -> bool:
    try:
        return home.is_in_use()
    except OSError as error:
        raise CheckpointError(
            f"the journal belongs to the state directory {home.path}, and whether a server uses "
            f"that cannot be checked: {error.strerror or error}. Give this server its own journal."
        ) from error


@asynccontextmanager
async def shared(settings: Settings, owner: str) -> AsyncGenerator[None]:
    """Keep servers that need the journal exclusively from using it.

    Args:
        settings: Settings with `replicas`.
        owner: Our id.

    Raises:
        CheckpointError: A server uses it exclusively, or its database cannot be reached.
    """
    from psycopg import Error

    from ...harness.checkpoint.postgres.lease import SharedLease
    from ..replicas.database import journal_schema

    assert settings.journal is not None
    url = settings.journal.get_secret_value()
    holder = Holder(owner, platform.node(), COMMAND)
    lease = SharedLease(split_database_url(url)[0], holder, schema=journal_schema(url))
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(lease.held(WAIT_SECONDS))
        except (Error, TimeoutError) as error:
            why = reason_of(error) or "it does not answer"
            raise CheckpointError(
                f"the database of the journal cannot be used: {why}. Check that it runs, and the "
                "URL of the journal."
            ) from error
        yield


async def _acquired(
    lease: Lease, state: StateDir, place: str, beside: bool, home: StateDir | None = None
) -> Holder | None:
    """Take the lease, waiting a little; return its other holder, or None.

    The journal of another state directory, `home`, must not be used there either.
    """
    deadline = anyio.current_time() + WAIT_SECONDS
    while True:
        other = await lease.acquire()
        # After the lease, because servers of `home` check in the opposite order.
        if other is None and home is not None and await anyio.to_thread.run_sync(_is_in_use, home):
            other = Holder(host=platform.node())
        if other is None or (beside and _is_ours(other, state, place)):
            return other
        if other.place == place and not _is_ours(other, state, place):
            await lease.take_over(other)  # it died without releasing the lease
        if anyio.current_time() > deadline:
            return other
        await anyio.sleep(_PAUSE)


def _is_ours(holder: Holder, state: StateDir, place: str) -> bool:
    """Whether a living process of our state directory holds the lease."""
    known = bool(holder.owner) and holder.owner.isalnum() and holder.place == place
    return known and state.is_alive(holder.owner)


async def _renew(lease: Lease, name: str) -> None:
    while True:
        await anyio.sleep(RENEW_SECONDS)
        try:
            other = await lease.acquire()
        except CheckpointError as error:
            # While the database is away, runs fail on their own.
            logger.warning("the lease on the journal was not renewed: %s", error)
            continue
        if other is not None:
            raise LeaseLost(
                f"the journal {name} was taken over by {_who(other)} while its "
                "database could not be reached. This server stops; its runs continue there."
            )


def _taken(name: str, other: Holder) -> CheckpointError:
    if other.place in (REPLICA, COMMAND):
        where = f", one of them on {other.host}" if other.host else ""
        return CheckpointError(
            f"the journal {name} is in use by servers that share it{where}. Add --replicas (or "
            "DEEP_AGENT_REPLICAS=true) to use it at the same time, or stop them first."
        )
    return CheckpointError(
        f"the journal {name} is in use by {_who(other)}. One server at a time "
        "can use it. Stop the other one, or give this one its own journal. If the other's machine "
        "was lost, its claim ends within half a minute."
    )


def _who(holder: Holder) -> str:
    where = f" on {holder.host}" if holder.host else ""
    return f"another server or command{where}"
