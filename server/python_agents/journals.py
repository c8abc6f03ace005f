"""Which journal an agent made in Python is served from: the server's, or one of its own.

Who carries which run is known by locks in a state directory. So servers that share a journal share
that directory, which for a journal of the agent's own is beside its file.
"""

from __future__ import annotations

from ...harness.agent import Agent
from ...harness.backends.mounts import directories_of
from ...harness.checkpoint.memory import MemoryCheckpointer
from ...harness.checkpoint.sqlite import SqliteCheckpointer
from ..settings.settings import Settings, SettingsError
from .rules import backends_of

__all__ = ["own_journal"]


def own_journal(agent: Agent, name: str, settings: Settings) -> SqliteCheckpointer | None:
    """Return the journal that an agent brings and the server can use; None for the server's own.

    Raises:
        SettingsError: It is one that cannot be served, or a setting does not go with it.
    """
    journal = agent.checkpointer
    if isinstance(journal, MemoryCheckpointer):
        return None  # nobody gave it one that lasts
    if not isinstance(journal, SqliteCheckpointer):
        raise SettingsError(
            f"agent {name} has a {type(journal).__name__} as its journal. Of those the server uses "
            "only a SqliteCheckpointer: of others it does not know whether another server works on "
            "their runs. Build the agent without a checkpointer, and its threads are kept in the "
            "state directory"
        )
    if journal.path == (settings.state_dir / "journal.sqlite3").absolute():
        return None
    if settings.journal_key is not None:
        raise SettingsError(
            f"agent {name} has a journal of its own, {journal.path}, which the setting "
            "'journal_key' does not seal. Build the agent without a checkpointer, or leave the key "
            "out"
        )
    for root in (root for one in backends_of(agent) for root in directories_of(one)):
        if journal.path.is_relative_to(root.absolute()):
            raise SettingsError(
                f"agent {name} works in {root}, where its journal {journal.path} is: it could read "
                "and change everybody's threads. Keep the journal elsewhere"
            )
    return journal
