"""`deep-agent-mcp demo`: the real server, the official client, and every claim checked."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["main"]

SCRIPT = Path(__file__).with_name("script.yaml")
SECONDS = {False: 58.0, True: 900.0}
"""Most time a demo may take, scripted and live."""

KEY = "ANTHROPIC_API_KEY"
LOG_LINES = 12


def main(live: bool = False) -> int:
    """Run the demo and return the exit code: 0, 1 if a claim is not true, 2 without a key.

    Args:
        live: Use the real model instead of the scripted one; needs `ANTHROPIC_API_KEY`.
    """
    if live and not os.environ.get(KEY):
        print(  # noqa: T201
            f"deep-agent-mcp demo --live needs a key: set {KEY}, or leave out --live for the "
            "scripted model, which needs none.",
            file=sys.stderr,
        )
        return 2
    folder = Path(tempfile.mkdtemp(prefix="deep-agent-demo-")).resolve()
    try:
        return _tell(folder, live)
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(folder: Path, live: bool) -> int:
    import anyio
    from mcp.shared.exceptions import MCPError

    from .view import DemoFailed, View

    view = View()
    started = time.monotonic()
    log = folder / "server.log"
    log.touch()
    failures: list[Exception] = []
    try:
        anyio.run(_story, view, folder, log, live)
    except* (DemoFailed, MCPError, TimeoutError) as group:
        failures += _leaves(group)
    if failures:
        text = str(failures[0])
        if isinstance(failures[0], TimeoutError):
            text = "It took too long; the last call above has not come back."
        elif isinstance(failures[0], MCPError):
            text = f"The server did not answer the call above: {text}"
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        view.failed(text, "\n".join(tail))
        return 1
    seconds = time.monotonic() - started
    view.end(
        f"All of it happened as shown: {view.claims} claims checked in {seconds:.0f} seconds.\n"
        "The scratch directory and the state are removed now."
    )
    return 0


async def _story(view: object, folder: Path, log: Path, live: bool) -> None:
    import anyio

    from .conversation import ServerProcess
    from .story import GATED, Story
    from .view import View

    assert isinstance(view, View)
    root, state, config = folder / "files", folder / "state", folder / "config.toml"
    root.mkdir()
    config.touch()  # so that the user's own settings have no say here
    arguments = ["--transport", "stdio", "--root", str(root), "--state-dir", str(state)]
    arguments += ["--config", str(config), "--approve", GATED, "--model-patience", "10"]
    if not live:
        arguments += ["--model", f"scripted:{SCRIPT}"]
    view.title(_opening(live))
    server = ServerProcess(arguments, folder, log, (KEY, "ANTHROPIC_BASE_URL") if live else ())
    with anyio.fail_after(SECONDS[live]):
        await Story(view, server, root, state / "journal.sqlite3", live=live).tell()


def _opening(live: bool) -> list[str]:
    if live:
        model = "The model is a [bold]real one[/], called over the network with your key."
    else:
        model = (
            "The model is the [bold]scripted[/] one: it replays answers from a file. No key, no "
            "network. Everything else is real: server, tools, files, journal, the kill."
        )
    return [
        "A real server as a child process, driven over stdio by the official MCP client.",
        model,
        "Lines with [bold green]\\[ok][/] were checked; if one is not so, the demo stops there.",
    ]


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    """Return the errors inside a task group's error, whatever groups wrap them."""
    found: list[Exception] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
