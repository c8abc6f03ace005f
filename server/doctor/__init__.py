"""Doctor: checks the setup, and connects to the server the way each client does.

The checks run in a fixed order; a tiny model call is only made on request. The report for people
has a line for each finding, with the fix below it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence

import anyio
import anyio.to_thread
from rich.console import Console
from rich.text import Text

from ...harness._internal.records import record
from ...harness.errors import HarnessError
from ...harness.messages.message import AIMessage, HumanMessage
from ...harness.models.base import ChatRequest
from ...harness.models.registry import DEFAULT_MODEL, init_chat_model
from ..install.machine import Machine
from ..settings.setting_types import is_sampling
from ..settings.settings import Settings, SettingsError
from ..settings.sources import load_settings
from .environment import (
    examine_files,
    examine_key,
    examine_packages,
    examine_port,
    examine_sandbox,
    examine_search,
)
from .findings import KNOWN_CLIENTS, Finding, Status, broken, examine_entries, note, ok
from .handshakes import Handshake, shake_hands
from .state import (
    examine_agent,
    examine_journal,
    examine_mounted,
    examine_plugins,
    examine_replicas,
    examine_state,
    examine_store,
)

__all__ = ["Examination", "Finding", "Handshake", "Report", "examine_live_model"]


@record
class Examination:
    """Subjects of an examination.

    Attributes:
        options: Of `serve`, as given.
        flags: Their values, for `load_settings`.
        config: The value of `--config`.
        name: The server's name in clients.
        clients: Names of the clients to simulate, in order.
        live: Whether to call the model.
        machine: The machine to check.
        application: The `module:attribute` of `serve`; None for the built-in agent.
    """

    options: Sequence[str]
    flags: Mapping[str, object]
    config: str | None
    name: str
    clients: Sequence[str]
    live: bool
    machine: Machine
    application: str | None = None

    async def run(self) -> AsyncGenerator[Finding | Handshake]:
        """Run all checks; yield each finding as soon as it is known."""
        parts = (examine_packages, examine_plugins)
        for finding in await anyio.to_thread.run_sync(
            lambda: [one for look in parts for one in look()]
        ):
            yield finding
        try:
            settings = load_settings(
                self.flags, self.machine.environ, config=self.config, warn=lambda _: None
            )
        except SettingsError as error:
            yield broken("settings", str(error), "Fix this first; the rest depends on it.")
            return
        for finding in await anyio.to_thread.run_sync(lambda: self._around(settings)):
            yield finding
        for look in (examine_journal, examine_replicas, examine_store, examine_mounted):
            for finding in await look(settings):
                yield finding
        if self.application is not None:
            yield await examine_agent(self.application, settings)
        if self.live:
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


CALL_SECONDS = 60.0
MOST_TOKENS = 16


async def examine_live_model(settings: Settings) -> Finding:
    """Ask the configured model for one word; this costs a few tokens."""
    name = settings.model or DEFAULT_MODEL
    about = "live model"
    if is_sampling(name):
        return note(about, f"{name} is the client's; only a client can ask it")
    question = HumanMessage("Answer with the word: ready")
    request = ChatRequest([question], settings={"max_tokens": MOST_TOKENS})
    began = time.monotonic()
    try:
        model = init_chat_model(name)
        try:
            with anyio.fail_after(CALL_SECONDS):
                stream = model.stream(request)
                answers = [one async for one in stream if isinstance(one, AIMessage)]
        finally:
            await model.aclose()
    except TimeoutError:
        fix = "Check the network, and ANTHROPIC_BASE_URL if it is set."
        return broken(about, f"{name} did not answer within {CALL_SECONDS:.0f} s", fix)
    except HarnessError as error:
        return broken(
            about,
            str(error),
            "Check the key, the model's name and the network, as the message says.",
        )
    if not answers:
        return broken(about, f"{name} gave no answer", "Try again.")
    return ok(about, f"{name} answered in {time.monotonic() - began:.1f} s")


_STYLES: dict[Status, str] = {"ok": "green", "note": "yellow", "broken": "bold red"}


class Report:
    """Prints findings as they come.

    Args:
        console: Where to; without a terminal it prints plain lines.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_clients = False

    def show(self, found: Finding | Handshake) -> None:
        """Print one."""
        if isinstance(found, Finding):
            self._line(found.status, found.about, found.text)
            self._below("fix: ", found.fix)
            return
        if not self._in_clients:
            self._in_clients = True
            self._print(Text("\nThe server, as each client meets it:", style="bold"))
        self._line(found.status, found.client.title, _summary(found))
        self._below("limits: ", "; ".join(found.client.cannot))
        for one in found.notes:
            self._below("note: ", one)
        for text, fix in found.problems:
            self._below("broken: ", text)
            self._below("fix: ", fix)

    def end(self, broken: int) -> None:
        """Print the summary."""
        words = "Nothing is broken." if not broken else f"Broken: {broken}. See `fix` above."
        self._print(Text(f"\n{words}", style="bold"))

    def _line(self, status: Status, about: str, text: str) -> None:
        line = Text(f"{status:<7}", style=_STYLES[status])
        line.append(f"{about}: ", style="bold not green not yellow not red")
        line.append(text, style="not bold default")
        self._print(line)

    def _below(self, label: str, text: str) -> None:
        if text:
            lines = text.splitlines()
            self._print(Text("\n".join([f"        {label}{lines[0]}", *lines[1:]]), style="dim"))

    def _print(self, text: Text) -> None:
        # Names and errors may come from files that others wrote: no escapes to the terminal.
        plain = "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text.plain)
        text.plain = plain
        self._console.print(text, soft_wrap=True)


def _summary(found: Handshake) -> str:
    parts = [found.client.protocol]
    if found.seconds is not None:
        parts.append(f"first answer {found.seconds:.2f} s")
    if found.tools:
        parts.append(f"{found.tools} tools")
    return "; ".join([*parts, *found.does])
