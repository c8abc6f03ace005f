"""Journals of a state directory: opens them, and encrypts or decrypts them as a whole."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio.to_thread

from ...harness._internal.records import record
from ...harness.checkpoint.base import Checkpointer
from ...harness.checkpoint.encryption import EncryptedCheckpointer, require_plain
from ...harness.checkpoint.keyring import Keyring
from ...harness.checkpoint.lease import lease_file
from ...harness.checkpoint.sqlite import SqliteCheckpointer
from ..runs.contracts import Servers
from ..settings.settings import Settings, SettingsError
from ..settings.state_dir import StateDir, StateDirError
from .journal_servers import servers_of

if TYPE_CHECKING:
    from ..python_agents.rules import OwnJournal

__all__ = [
    "Beside",
    "Sealed",
    "journal_alone",
    "journal_beside_servers",
    "keys_of",
    "open_journal",
    "seal_journal",
    "unseal_journal",
]


@asynccontextmanager
async def open_journal(
    settings: Settings,
    state: StateDir,
    owner: str | None = None,
    *,
    beside: bool = False,
    own: OwnJournal | None = None,
) -> AsyncGenerator[Checkpointer]:
    """Open the journal of a state directory that the caller has claimed.

    Args:
        settings: What the operator chose.
        state: The state directory.
        owner: The caller's id in it, which keeps other servers from a journal outside it; None
            to only read. A replica must have joined the others before.
        beside: Whether the caller may work beside a server of the same state directory.
        own: An agent's own journal, to use instead of the settings' one. It is left open.

    Raises:
        HarnessError: It cannot be opened, was written by a newer version, is encrypted with other
            keys than the settings', is not encrypted although there are keys, or is in use.
    """
    async with AsyncExitStack() as stack:
        if own is not None:
            yield await stack.enter_async_context(_own(own, state, owner))
            return
        plain, name = _plain(settings, state, owner)
        # Most journals are files in the state directory, and used from nowhere else.
        if settings.journal is not None and owner is not None:
            from .journal_places import leased, shared

            if not settings.replicas:
                await stack.enter_async_context(leased(plain, name, state, owner, beside=beside))
            elif beside:
                await stack.enter_async_context(shared(settings, owner))
        elif owner is not None and lease_file(state.journal).exists():
            from .journal_places import require_unleased

            await require_unleased(SqliteCheckpointer(state.journal), state, owner)
        journal = await stack.enter_async_context(_opened(plain))
        if settings.journal_key is None:
            await require_plain(journal)
            yield journal
        else:
            encrypted = EncryptedCheckpointer(journal, keys_of(settings))
            await encrypted.check()
            yield encrypted


@asynccontextmanager
async def _own(own: OwnJournal, state: StateDir, owner: str | None) -> AsyncGenerator[Checkpointer]:
    """Check an agent's own journal, and keep other servers from using it."""
    async with AsyncExitStack() as stack:
        if own.leased and owner is not None:
            from .journal_places import leased

            await stack.enter_async_context(leased(own.stored, own.place, state, owner))
        if own.closes:
            await stack.enter_async_context(_opened(own.journal))
        if isinstance(own.journal, EncryptedCheckpointer):
            await own.journal.check()
        else:
            await require_plain(own.journal)
        yield own.journal


def _plain(
    settings: Settings, state: StateDir, owner: str | None = None
) -> tuple[Checkpointer, str]:
    """Return the unopened journal, without decryption, and its place."""
    if settings.journal is None:
        return SqliteCheckpointer(state.journal), str(state.journal)
    from .journal_places import journal_at, journal_name

    return journal_at(settings, owner), journal_name(settings)


@asynccontextmanager
async def _opened(journal: Checkpointer) -> AsyncGenerator[Checkpointer]:
    """Open a journal, if it needs that, and close it at the end."""
    if isinstance(journal, AbstractAsyncContextManager):
        async with journal:
            yield journal
        return
    try:
        yield journal
    finally:
        await journal.close()


@record
class Beside:
    """A journal that a command has opened while servers may use it.

    Attributes:
        state: The state directory.
        owner: Id of the command in it.
        journal: The journal.
        servers: The servers that use it.
    """

    state: StateDir
    owner: str
    journal: Checkpointer
    servers: Servers


@asynccontextmanager
async def journal_beside_servers(
    settings: Settings, *, create: bool = False
) -> AsyncGenerator[Beside]:
    """Open the journal of the settings, which servers of its state directory may be using.

    Args:
        settings: What the operator chose.
        create: Make a journal if there is none.

    Raises:
        StateDirError: The directory cannot be used, or has no journal and `create` is False.
        HarnessError: As for `open_journal`.
    """
    if settings.journal is not None:
        from .journal_places import require_kept

        if not create:
            require_kept(settings)
    elif not create and not StateDir(settings.state_dir).journal.exists():
        raise StateDirError(
            f"there are no threads and no runs in {settings.state_dir} yet: it has no journal. "
            "Nothing was created. Name the state directory of your server with --state-dir DIR or "
            "DEEP_AGENT_STATE_DIR, or start the server once."
        )
    state = StateDir.open(settings.state_dir)
    with state.claim() as owner:
        async with (
            open_journal(settings, state, owner, beside=True) as journal,
            servers_of(settings, state) as servers,
        ):
            yield Beside(state, owner, journal, servers)


@record
class Sealed:
    """Result of `seal_journal`.

    Attributes:
        threads: How many threads were sealed.
        key_id: Id of the key that seals them now.
        other_ids: Ids of the keys that are no longer needed.
    """

    threads: int
    key_id: str
    other_ids: tuple[str, ...]


async def seal_journal(settings: Settings, *, plain: bool) -> Sealed:
    """Seal threads, schedules and logins with the settings' first key, and erase older forms.

    Args:
        settings: What the operator chose.
        plain: Also accept data that is not encrypted.

    Raises:
        SettingsError: There is no key.
        StateDirError: There is no journal, or it is in use; nothing was done.
        HarnessError: Something cannot be decrypted; what was sealed before stays sealed.
    """
    keys = keys_of(settings)
    async with _sealed_alone(settings, keys) as journal:
        count = await (journal.seal_plain() if plain else journal.reseal())
        await _reseal_beside(settings, keys, plain=plain)
        await journal.vacuum()
    return Sealed(count, keys.ids[0], keys.ids[1:])


async def unseal_journal(settings: Settings) -> int:
    """Remove the encryption of threads, schedules and logins; return how many threads there are.

    Raises:
        SettingsError, StateDirError, HarnessError: As for `seal_journal`.
    """
    keys = keys_of(settings)
    async with _sealed_alone(settings, keys) as journal:
        count = await journal.unseal()
        await _reseal_beside(settings, None, plain=True)
        await journal.vacuum()
    return count


async def _reseal_beside(settings: Settings, new: Keyring | None, *, plain: bool) -> None:
    """Seal again, or decrypt, what the journal's keys encrypt beside the journal."""
    from ..agenda.opening import reseal_schedules
    from ..auth.mounted_logins import reseal_logins
    from ..replicas.sealed_values import ValueSealer, reseal

    opens, seals = ValueSealer(keys_of(settings), plain=plain), ValueSealer(new)
    if settings.replicas:
        from ..replicas.database import open_database

        assert settings.journal is not None
        database = open_database(settings.journal.get_secret_value(), connections=1)
        try:
            await reseal(database, opens, seals)
        finally:
            await database.close()
    await anyio.to_thread.run_sync(reseal_logins, settings, new)
    await reseal_schedules(settings, opens, seals)


def keys_of(settings: Settings) -> Keyring:
    """Return the settings' keys for the journal.

    Raises:
        SettingsError: None is set.
    """
    if settings.journal_key is None:
        raise SettingsError(
            "no journal key is set; nothing was done. Name the file that has it with "
            "--journal-key-file FILE or DEEP_AGENT_JOURNAL_KEY_FILE. If the journal is not "
            "encrypted yet, make a key with `deep-agent-mcp threads new-key`, and keep it in a "
            "file that only you can read."
        )
    return Keyring.parse(settings.journal_key.get_secret_value())


@asynccontextmanager
async def journal_alone(settings: Settings) -> AsyncGenerator[Checkpointer]:
    """Keep everybody else from the state directory and its journal, which is not opened.

    Raises:
        StateDirError: There is no journal, or somebody uses the directory; nothing was done.
        CheckpointError: A server with another state directory uses the journal.
    """
    from .journal_places import leased, require_kept

    require_kept(settings)
    state = StateDir.open(settings.state_dir)
    plain, name = _plain(settings, state)
    with state.alone():
        async with leased(plain, name, state, secrets.token_hex(8)):
            yield plain


@asynccontextmanager
async def _sealed_alone(settings: Settings, keys: Keyring) -> AsyncGenerator[EncryptedCheckpointer]:
    async with journal_alone(settings) as plain, _opened(plain) as journal:
        yield EncryptedCheckpointer(journal, keys)
