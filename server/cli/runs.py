"""`deep-agent-mcp runs …`: lists, shows, cancels and retries runs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import click

from .state import with_settings

if TYPE_CHECKING:
    from ...harness.checkpoint.base import RunStatus
    from ..operations.run_admin import RunAdmin
    from ..results import Answer
    from ..settings.settings import Settings

__all__ = ["runs"]

_STATUSES = ("queued", "running", "needs_approval", "paused", "done", "failed", "cancelled")

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
@click.option("--state-dir", metavar="DIR", help="State directory of the server.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal, if it is not in the state directory.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--replicas", flag_value="true", help="Work beside servers that share the journal.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.pass_context
def runs(ctx: click.Context, **flags: str | None) -> None:
    """List, show, cancel and retry runs.

    Works beside running servers: the server that works on a run ends it, or goes on with it.
    """
    ctx.obj = flags


@runs.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs with this status.")
@click.option("--thread", metavar="THREAD", help="Only runs of this thread.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@_as_json
@click.pass_obj
def list_(
    flags: dict[str, str | None], status: str | None, thread: str | None, limit: int, as_json: bool
) -> None:
    """List runs, newest first."""
    wanted = cast("RunStatus | None", status)
    _print(_within(flags, lambda admin: admin.list(wanted, thread, limit)), as_json)


@runs.command()
@click.argument("run")
@_as_json
@click.pass_obj
def show(flags: dict[str, str | None], run: str, as_json: bool) -> None:
    """Show a run, its usage and its open questions."""
    _print(_within(flags, lambda admin: admin.show(run)), as_json)


@runs.command()
@click.argument("run", nargs=-1, required=True)
@click.option(
    "--reason",
    default="cancelled on the command line",
    show_default=True,
    help="What the record of the run shall say.",
)
@_as_json
@click.pass_obj
def cancel(flags: dict[str, str | None], run: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Cancel runs, whichever server works on them. What they have done stays."""
    _print(_within(flags, lambda admin: admin.cancel(run, reason)), as_json)


@runs.command()
@click.argument("run")
@_as_json
@click.pass_obj
def retry(flags: dict[str, str | None], run: str, as_json: bool) -> None:
    """Have a server go on with a run that failed or paused, at its last step.

    Without a running server, the next one that starts goes on with it.
    """
    _print(_within(flags, lambda admin: admin.retry(run)), as_json)


def _within(flags: dict[str, str | None], work: Callable[[RunAdmin], Awaitable[Answer]]) -> Answer:
    """Do some work with the journal that flags, environment and file name."""

    async def with_admin(settings: Settings) -> Answer:
        from ..operations.run_admin import RunAdmin

        async with RunAdmin.open(settings) as admin:
            return await work(admin)

    return with_settings(flags, with_admin)


def _print(answer: Answer, as_json: bool) -> None:
    click.echo(json.dumps(answer.data, ensure_ascii=False, indent=2) if as_json else answer.text)
