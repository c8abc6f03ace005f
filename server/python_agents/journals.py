"""Which journal an agent made in Python is served from: the server's, or one of its own.

Who carries which run is known by locks in a state directory. So servers that share a journal share
that directory, which for a journal of the agent's own is beside its file.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...harness._internal.records import record
from ...harness.agent import Agent
from ...harness.backends.mounts import directories_of
from ...harness.checkpoint.encryption import EncryptedCheckpointer
from ...harness.checkpoint.memory import MemoryCheckpointer
from ...harness.checkpoint.sqlite import SqliteCheckpointer
from ..settings.settings import Settings, SettingsError
from .rules import backends_of

__all__ = ["OwnJournal", "own_journal"]


@record
class OwnJournal:
    """A journal that an agent brings.

    Attributes:
        journal: The journal, sealed or not.
        path: Its file.
        closes: Whether the server closes it, which is final.
    """

    journal: SqliteCheckpointer | EncryptedCheckpointer
    path: Path
    closes: bool = False

    @property
    def state(self) -> Path:
        """The directory of the locks and names that go with it."""
        return self.path.with_name(f"{self.path.name}.server")


def own_journal(agent: Agent, name: str, settings: Settings) -> OwnJournal | None:
    """Return the journal that an agent brings and the server can use; None for the server's own.

    Raises:
        SettingsError: It is one that cannot be served, or a setting does not go with it.
    """
    journal = agent.checkpointer
    stored = journal.journal if isinstance(journal, EncryptedCheckpointer) else journal
    if isinstance(stored, MemoryCheckpointer):
        return None  # nobody gave it one that lasts
    if not isinstance(stored, SqliteCheckpointer):
        raise SettingsError(
            f"agent {name} has a {type(stored).__name__} as its journal. Of those the server uses "
            "only a SqliteCheckpointer: of others it does not know whether another server works on "
            "their runs. Build the agent without a checkpointer, and its threads are kept in the "
            "state directory"
        )
    path = Path(os.path.realpath(stored.path))
    if path == Path(os.path.realpath(settings.state_dir / "journal.sqlite3")):
        return None
    if settings.journal_key is not None:
        raise SettingsError(
            f"agent {name} has a journal of its own, {path}, which the setting 'journal_key' does "
            "not seal. Leave the key out, and wrap the journal in an EncryptedCheckpointer; or "
            "build the agent without a checkpointer"
        )
    for root in (root for one in backends_of(agent) for root in directories_of(one)):
        if path.is_relative_to(os.path.realpath(root)):
            raise SettingsError(
                f"agent {name} works in {root}, where its journal {path} is: it could read and "
                "change everybody's threads. Keep the journal elsewhere"
            )
    return OwnJournal(journal if isinstance(journal, EncryptedCheckpointer) else stored, path)
