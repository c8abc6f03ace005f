"""`deep-agent-mcp doctor`: checks this machine, and says how to fix what is missing."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from .install import INSTALLABLE, ServeOptions

if TYPE_CHECKING:
    from ..doctor import Examination, Finding, Handshake

__all__ = ["doctor"]


@click.command()
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVE OPTIONS…]")
@click.option(
    "--client",
    "clients",
    type=click.Choice(INSTALLABLE),
    multiple=True,
    help="Be this client only. Repeatable.  [all]",
)
@click.option("--name", default="deep-agent", show_default=True, help="What clients call it.")
@click.option("--live", is_flag=True, help="Call the model once, too; costs a few tokens.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(
    ctx: click.Context,
    options: tuple[str, ...],
    clients: tuple[str, ...],
    name: str,
    live: bool,
    as_json: bool,
) -> None:
    """Look whether all that the server needs is here, and connect to it as each client does.

    Options after `--` are those of `serve`: say there what the client's entry says. The servers
    that are started have a passing state directory, so no thread or run of yours is touched. The
    exit code is 1 if something that was asked for does not work.
    """
    from ..doctor import Examination
    from ..install.machine import Machine

    serve = ServeOptions(cast(click.Group, ctx.find_root().command).commands["serve"], options)
    examination = Examination(
        options=options,
        flags=serve.flags,
        config=serve.config,
        name=name,
        clients=clients or INSTALLABLE,
        live=live,
        machine=Machine.here(),
        application=serve.application,
    )
    if serve.application is not None:
        sys.path.insert(0, os.getcwd())  # as `serve` does
    found = _run(examination, as_json)
    ctx.exit(1 if any(one.status == "broken" for one in found) else 0)


def _run(examination: Examination, as_json: bool) -> list[Finding | Handshake]:
    """Examine, and print what is found as it comes, or as JSON at the end."""
    import anyio

    from ..doctor import Finding

    found: list[Finding | Handshake] = []

    async def examine() -> None:
        from contextlib import aclosing

        async with aclosing(examination.run()) as parts:
            async for one in parts:
                found.append(one)
                if report is not None:
                    report.show(one)

    report = None
    if not as_json:
        from rich.console import Console

        from ..doctor.report import Report

        report = Report(Console(highlight=False))
    anyio.run(examine)
    broken = sum(one.status == "broken" for one in found)
    if report is not None:
        report.end(broken)
        return found
    data: dict[str, Any] = {
        "ok": not broken,
        "findings": [one.data() for one in found if isinstance(one, Finding)],
        "clients": [one.data() for one in found if not isinstance(one, Finding)],
    }
    click.echo(json.dumps(data, indent=2))
    return found
