"""Start of the server in this process, with messages for errors."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING

import click

from .shared import Refused

if TYPE_CHECKING:
    from ..settings.settings import Settings

__all__ = ["start"]


def start(
    flags: Mapping[str, object],
    config: str | None,
    application: str | None = None,
    *,
    reload: bool = False,
) -> None:
    """Serve until the client disconnects or a signal arrives.

    Args:
        flags: Options by setting.
        config: The file of settings, if one is given.
        application: `MODULE:ATTRIBUTE` of an agent in Python, if one is given.
        reload: Whether to reload the agent when its files change.

    Raises:
        Refused: Nothing was started, or a lease was lost.
    """
    # Imports only create permanent objects; garbage collection would take 5 % of the start.
    gc.disable()
    try:
        settings, read = _settings(flags, config)
        if application is not None:
            from ...harness._internal.code_folders import import_from

            import_from(os.getcwd(), [application.partition(":")[0]], first=True)
        import anyio

        with _refusals():
            main = partial(_main, settings, read, application, reload=reload)
            anyio.run(main, backend="asyncio")
    finally:
        gc.enable()


def _settings(
    flags: Mapping[str, object], config: str | None
) -> tuple[Settings, Callable[[], Settings]]:
    """Return the settings, and a function that reads them again."""
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings

    logging.basicConfig(stream=sys.stderr, format="deep-agent-mcp: %(levelname)s: %(message)s")
    try:
        environ = dict(os.environ)
        with redirect_stdout(sys.stderr):  # modules of the agent file may print when imported
            settings = load_settings(flags, environ, config=config)
    except SettingsError as error:
        raise _not_started([error]) from None
    # Child processes must not inherit secrets, because they may run code of a model.
    for secret in ("JOURNAL_KEY", "JOURNAL", "STORE", "WEBHOOK_SECRET"):
        os.environ.pop(f"DEEP_AGENT_{secret}", None)
    logging.getLogger().setLevel(settings.log_level.upper())
    return settings, partial(load_settings, flags, environ, config=config, warn=lambda _: None)


@contextmanager
def _refusals() -> Generator[None]:
    """Convert errors that end the server, or prevent its start, to messages for people.

    Raises:
        Refused: The server cannot start or continue.
    """
    from ...harness._internal.concurrency import leaves
    from ...harness.errors import HarnessError, LeaseLost
    from ..settings.settings import SettingsError
    from ..settings.state_dir import StateDirError
    from ..transports.transports import AddressError

    refused: list[BaseException] = []
    try:
        try:
            yield
        except* (AddressError, SettingsError, StateDirError, HarnessError) as group:
            refused += leaves(group)
    except KeyboardInterrupt:  # before the signal handlers are installed
        sys.exit(130)
    if any(isinstance(one, LeaseLost) for one in refused):
        raise Refused("\n".join(map(str, refused)))
    if refused:
        raise _not_started(refused)


WAITS = """\
deep-agent-mcp: waiting for an MCP client on standard input. Ctrl-C ends.
  Clients start this command themselves: deep-agent-mcp install CLIENT
  To give an agent work here:            deep-agent-mcp run GOAL, or deep-agent-mcp chat
  To serve over HTTP:                    deep-agent-mcp serve --transport http"""


def _is_typed_at() -> bool:
    """Whether standard input is a terminal; a client's never is."""
    return sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def _not_started(errors: Sequence[BaseException]) -> Refused:
    text = "\n".join(map(str, errors)).rstrip(".")
    return Refused(f"{text}. Nothing was started.")


async def _main(
    settings: Settings, read: Callable[[], Settings], application: str | None, *, reload: bool
) -> None:
    from ..transports.signals import stop_on_signals
    from ..transports.transports import bind

    over_http = settings.transport != "stdio"
    listener = bind(settings.host, settings.port) if over_http else None

    from ..app import create_app  # slow; not needed to detect that a port is in use

    source = None
    if application is not None:
        from ..python_agents.source import ONLY_LOOKS, AgentSource

        only_looks = ONLY_LOOKS in os.environ
        source = AgentSource(application, reload=reload, owns_process=True, only_looks=only_looks)
    with stop_on_signals() as stop:
        async with AsyncExitStack() as stack:
            with redirect_stdout(sys.stderr):
                app = await stack.enter_async_context(create_app(settings, read, source))
            gc.freeze()
            gc.enable()
            if listener is None and _is_typed_at():
                click.echo(WAITS, err=True)
            await app.serve(listener, stop)
