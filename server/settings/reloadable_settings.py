"""Reloadable settings: apply the configuration file again when it is saved.

Some settings apply to new runs and calls as soon as they are saved. The others affect parts that
already exist (the address, the journal, the sandbox), so they wait for the next start, and the log
says so. If the file is invalid or missing, the last good settings stay in force: falling back to
defaults while an editor saves would remove the operator's restrictions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ...harness._internal.records import record
from ...harness.definitions.confined_files import FollowedFiles
from ...harness.definitions.sources import read_regular
from ...harness.errors import HarnessError
from .definition import definition_of
from .settings import Settings, SettingsError
from .sources import default_config_file

__all__ = ["ReloadableSettings", "SettingsSnapshot"]

logger = logging.getLogger(__name__)

_AT_ONCE = frozenset(
    {
        "drain_seconds", "journal_patience", "limits", "log_level", "max_runs",
        "max_runs_per_minute", "max_sessions", "principal_agents", "priorities", "queue_size",
        "task_models", "thread_per", "wait_budget", "wait_budgets", "workers",
    }
)  # fmt: skip
_IN_THE_AGENT = frozenset(
    {"approve", "beyond_allowed_tools", "definition", "model", "model_patience"}
)
_OF_STORES = frozenset({"store", "store_url_file"})
_OF_FILES = frozenset({"agents", "memory", "policy", "profiles", "skills"})
_MOST_BYTES = 1_000_000


@record
class SettingsSnapshot:
    """The settings at one moment.

    Attributes:
        settings: All of them.
        errors: Errors in the newest version of the files, by path.
        waiting: Names of changed settings that wait for the next start.
        digests: One entry per setting and error; a changed value means that it changed.
    """

    settings: Settings
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    waiting: tuple[str, ...] = ()

    @property
    def digests(self) -> Mapping[str, str]:
        """One entry per setting; a changed value means that it changed. It contains no keys."""
        known = {
            name: repr(getattr(self.settings, name))
            for name in (*_AT_ONCE, *_IN_THE_AGENT, *_OF_FILES)
        }
        return {**known, **self.errors}


class ReloadableSettings(FollowedFiles[SettingsSnapshot]):
    """Settings that follow their file. Safe to read from any thread.

    Args:
        settings: The settings at the start of the server.
        read: Reads all sources again, with the flags and the environment of the start. None for
            settings that never change.
        in_python: Whether the agent is built in Python, and so keeps its files and its store.
    """

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings] | None = None,
        *,
        in_python: bool = False,
    ) -> None:
        super().__init__(SettingsSnapshot(settings))
        self._started = settings
        self._in_python = in_python
        self._read = read
        self._follow: Callable[[Settings], None] = lambda _: None
        self._path = settings.config_file or default_config_file()
        self._text: Sequence[bytes] | None = None

    @property
    def current(self) -> Settings:
        """The settings in force."""
        return self.snapshot.settings

    @property
    def waiting(self) -> Sequence[str]:
        """The changes of the file, and the settings that wait for the next start."""
        return self.snapshot.waiting

    @property
    def roots(self) -> Sequence[Path]:
        """The files to watch for changes: regular or missing ones."""
        if self._read is None:
            return ()
        settings = self.snapshot.settings
        agent = () if settings.agent_file is None else (settings.agent_file,)
        described = definition_of(settings)
        named = () if described is None else described.named
        every = dict.fromkeys((self._path, *agent, *named))
        return tuple(one for one in every if one.is_file() or not one.exists())

    def follow(self, apply: Callable[[Settings], None]) -> None:
        """Register a follower of changes. It may block, and refuse with a `HarnessError`."""
        self._follow = apply

    def reload(self) -> bool:
        """Read the file again and return whether anything changed."""
        with self._lock:
            if not self.roots:
                return False
            old = self.snapshot
            try:
                texts = self._bytes()
                if texts == self._text and not old.errors:
                    return False
                self.snapshot = self._taken(texts)
            except (HarnessError, OSError, SettingsError) as error:
                why = str(error).rstrip(".")
                problem = f"{why}. The last good settings stay in force until this is fixed."
                self.snapshot = SettingsSnapshot(
                    old.settings, {str(self._broken(error)): problem}, old.waiting
                )
            return self.snapshot != old

    def _broken(self, error: Exception) -> Path:
        """Return the file that an error is about."""
        agent = self.snapshot.settings.agent_file
        return agent if agent is not None and str(agent) in str(error) else self._path

    def _bytes(self) -> Sequence[bytes]:
        """Return the content of each file, the configuration file first."""
        return [self._bytes_of(one) for one in self.roots]

    def _bytes_of(self, path: Path) -> bytes:
        try:
            return read_regular(path, _MOST_BYTES)
        except FileNotFoundError:
            if path != self._path or self.snapshot.settings.config_file is not None:
                raise self._gone(path) from None
            return b""  # there never was one

    def _gone(self, path: Path) -> SettingsError:
        return SettingsError(f"file {path} is gone.")

    def _taken(self, texts: Sequence[bytes]) -> SettingsSnapshot:
        assert self._read is not None
        old = self.snapshot
        wanted = self._read()
        if self._bytes() != texts:
            return old  # it is being written, and another notification will follow
        if wanted.config_file is None and old.settings.config_file is not None:
            raise self._gone(self._path)  # and it is back by now
        at_once = self._changeable()
        changed = [
            "agent_file" if name == "definition" else name  # what the operator calls it
            for name in type(wanted).model_fields
            if name not in at_once
            and name != "config_file"
            and getattr(wanted, name) != getattr(self._started, name)
        ]
        waiting = (*dict.fromkeys(changed), *self._waiting_tables(wanted))
        settings = _mixed(self._started, wanted, at_once | {"config_file"})
        same = (settings, waiting) == (old.settings, old.waiting)
        configured = texts[0] if texts and self.roots[0] == self._path else b""
        if not (configured.strip() or same or old.settings.config_file is None):
            # Many editors empty a file before they write it.
            raise SettingsError(
                f"configuration file {self._path} is empty. To unset all of its settings, leave "
                "only a comment in it."
            )
        if settings != old.settings:
            self._follow(settings)
        if waiting and waiting != old.waiting:
            logger.warning(
                "%s: %s: takes effect when the server is started again",
                wanted.agent_file if wanted.config_file is None else self._path,
                ", ".join(waiting),
            )
        self._text = texts
        return SettingsSnapshot(settings, {}, waiting)

    def _changeable(self) -> frozenset[str]:
        """Return the settings that can change while the server runs.

        Background tasks belong to the agent that started them. Paths that commands must not change
        are fixed when their sandbox is created, and a principal's own paths when its files are
        first used.
        """
        if self._started.background_subagents:
            return _AT_ONCE
        at_once = _AT_ONCE | _IN_THE_AGENT
        if not self._in_python:
            at_once |= _OF_STORES
        if self._started.execute != "off" or self._started.per_principal:
            return at_once
        return at_once | _OF_FILES

    def _waiting_tables(self, wanted: Settings) -> tuple[str, ...]:
        """Return the tables of the agent file that were changed and wait for the next start."""
        old, new = definition_of(self._started), definition_of(wanted)
        started = self._started
        if old is None or new is None or started.background_subagents:
            return ()  # no change, or all changes wait
        vectors = [None if one.file.store is None else one.file.store.vectors for one in (old, new)]
        waits = {
            "[files]": (self._in_python or started.execute != "off")
            and old.file.files != new.file.files,
            "[store.vectors]": self._in_python and vectors[0] != vectors[1],
        }
        return tuple(name for name, does in waits.items() if does)


def _mixed(started: Settings, wanted: Settings, names: frozenset[str]) -> Settings:
    """Return the first settings with these fields of the second, set there or not."""
    values = {
        name: getattr(wanted if name in names else started, name)
        for name in type(started).model_fields
    }
    is_set = (started.model_fields_set - names) | (wanted.model_fields_set & names)
    return Settings.model_construct(is_set, **values)
