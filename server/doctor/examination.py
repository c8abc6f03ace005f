"""The whole examination, in the order in which things build on each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

import anyio.to_thread

from ...harness._internal.records import record
from ..install.machine import Machine
from ..settings.settings import Settings, SettingsError
from ..settings.sources import load_settings
from .entries import examine_entries
from .environment import (
    examine_files,
    examine_key,
    examine_port,
    examine_sandbox,
    examine_search,
)
from .findings import Finding, broken, note
from .handshakes import Handshake, shake_hands
from .known_clients import KNOWN_CLIENTS
from .packages import examine_packages
from .state import examine_journal, examine_state

__all__ = ["Examination"]


@record
class Examination:
    """What to look at.

    Attributes:
        options: Of `serve`, as given.
        flags: Their values, for `load_settings`.
        config: The value of `--config`.
        name: What clients call the server.
        clients: Names of the clients to be, in order.
        live: Whether to call the model.
        machine: Where we are.
    """

    options: Sequence[str]
    flags: Mapping[str, object]
    config: str | None
    name: str
    clients: Sequence[str]
    live: bool
    machine: Machine

    async def run(self) -> AsyncGenerator[Finding | Handshake]:
        """Look at everything; yield what was found as soon as it is known."""
        for finding in await anyio.to_thread.run_sync(lambda: [*examine_packages()]):
            yield finding
        try:
            settings = load_settings(
                self.flags, self.machine.environ, config=self.config, warn=lambda _: None
            )
        except SettingsError as error:
            yield broken("settings", str(error), "Correct this first; the rest depends on it.")
            return
        for finding in await anyio.to_thread.run_sync(lambda: self._around(settings)):
            yield finding
        for finding in await examine_journal(settings):
            yield finding
        if self.live:
            from .live import examine_live_model

            yield await examine_live_model(settings)
        if settings.per_principal:
            why = "with a root for each user, clients connect over HTTP with a token"
            yield note("clients", f"none was tried: {why}")
            return
        for client in self.clients:
            yield await shake_hands(KNOWN_CLIENTS[client], self.options, settings, self.name)

    def _around(self, settings: Settings) -> list[Finding]:
        return [
            *examine_state(settings),
            *examine_key(settings, self.machine.environ),
            *examine_sandbox(settings),
            *examine_search(),
            *examine_files(settings),
            *examine_port(settings),
            *examine_entries(self.machine, self.name, frozenset(self.clients)),
        ]
