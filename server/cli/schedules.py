"""`deep-agent-mcp schedules …` and `webhooks …`: goals at set times, and notifications of runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .shared import OptionsFirst, Refused, json_option, print_answer, with_settings

if TYPE_CHECKING:
    from ..results import Answer
    from ..settings.settings import Settings

__all__ = ["schedules", "webhooks"]

_Flags = dict[str, str | None]

_principal = click.option(
    "--principal", metavar="NAME", default="", help="The user it belongs to.  [the local user]"
)


def _place(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the location of the servers' shared data."""
    for option in (
        click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal."),
        click.option(
            "--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE."
        ),
        click.option(
            "--journal", metavar="URL", help="The journal, if it is not in the state directory."
        ),
        click.option("--config", metavar="FILE", help="TOML file of settings."),
        click.option("--state-dir", metavar="DIR", help="State directory of the server."),
    ):
        command = option(command)
    return command


@click.group(cls=OptionsFirst)
@_place
@click.pass_context
def schedules(ctx: click.Context, **flags: str | None) -> None:
    """Give goals to the agent repeatedly, at set times.

    Servers that are started with --schedules run them.
    """
    ctx.obj = flags


@schedules.command()
@click.argument("name")
@click.argument("goal")
@click.option("--cron", required=True, metavar="FIELDS", help="Such as '0 7 * * MON-FRI'.")
@click.option(
    "--timezone", metavar="ZONE", default="UTC", show_default=True, help="Such as Europe/Berlin."
)
@click.option("--agent", metavar="NAME", default="", help="A subagent that gets the goal.")
@click.option("--thread", metavar="THREAD", default="", help="Continue this thread each time.")
@click.option("--same-thread", is_flag=True, help="Continue the thread of the first run.")
@_principal
@json_option
@click.pass_obj
def add(
    flags: _Flags,
    name: str,
    goal: str,
    cron: str,
    timezone: str,
    agent: str,
    thread: str,
    same_thread: bool,
    principal: str,
    as_json: bool,
) -> None:
    """Add a schedule that gives GOAL to the agent.

    Each run starts a new thread, unless you pass --thread or --same-thread.
    """

    async def work(settings: Settings) -> Answer:
        from ..agenda.schedules import Work
        from ..operations.agenda import add_schedule

        made = Work(principal, cron, timezone, goal, agent, thread, keeps_thread=same_thread)
        return await add_schedule(settings, name, made)

    if not name.strip() or not goal.strip():
        raise click.UsageError("NAME and GOAL must not be empty.")
    _require_time(cron, timezone)
    print_answer(with_settings(flags, work), as_json)


def _require_time(cron: str, timezone: str) -> None:
    from ...harness.errors import HarnessError
    from ..agenda.cron import next_time

    try:
        next_time(cron, timezone, time.time())
    except HarnessError as error:
        raise Refused(str(error)) from None


@schedules.command("list")
@json_option
@click.pass_obj
def list_(flags: _Flags, as_json: bool) -> None:
    """List the schedules of all principals."""

    async def work(settings: Settings) -> Answer:
        from ..operations.agenda import list_schedules

        return await list_schedules(settings)

    print_answer(with_settings(flags, work), as_json)


def _change(action: str, about: str) -> None:
    @schedules.command(action, help=about)
    @click.argument("name")
    @_principal
    @json_option
    @click.pass_obj
    def change(flags: _Flags, name: str, principal: str, as_json: bool) -> None:  # pyright: ignore[reportUnusedFunction]
        async def work(settings: Settings) -> Answer:
            from ..operations.agenda import change_schedule

            return await change_schedule(settings, action, name, principal)

        print_answer(with_settings(flags, work), as_json)


_change("pause", "Stop a schedule from firing until it is resumed.")
_change("resume", "Let a paused schedule fire again. Missed times are skipped.")
_change("run", "Fire a schedule once now, in addition to its times.")
_change("remove", "Remove a schedule. Its runs and threads stay.")


@click.group(cls=OptionsFirst)
@_place
@click.option(
    "--webhook-host",
    "webhook_hosts",
    metavar="NAME",
    multiple=True,
    help="A host that webhooks may go to. Repeatable.",
)
@click.option("--webhook-secret-file", metavar="FILE", help="Secrets to sign with.")
@click.pass_context
def webhooks(ctx: click.Context, **flags: str | None) -> None:
    """Tell other programs when a run pauses or ends.

    `serve --webhook URL` sends the requests; these commands help you set it up.
    """
    ctx.obj = flags


@webhooks.command("new-secret")
def new_secret_() -> None:
    """Print a new secret to sign webhooks with.

    Write it into the file of --webhook-secret-file, and give it to the receiver.
    """
    from ..agenda.webhooks import new_secret

    click.echo(new_secret())


@webhooks.command()
@click.argument("url")
@json_option
@click.pass_context
def test(ctx: click.Context, url: str, as_json: bool) -> None:
    """Send a signed test event to URL, once. The exit code is 1 if it is not received."""

    async def work(settings: Settings) -> Answer:
        from ..operations.agenda import test_webhook

        return await test_webhook(settings, url)

    answer = with_settings(ctx.obj, work)
    print_answer(answer, as_json)
    ctx.exit(1 if answer.failed else 0)


@webhooks.command("list")
@json_option
@click.pass_obj
def waiting(flags: _Flags, as_json: bool) -> None:
    """List the events that wait to be sent again.

    Shows which were not received yet, and when each is sent next.
    """

    async def work(settings: Settings) -> Answer:
        from ..operations.agenda import list_deliveries

        return await list_deliveries(settings)

    print_answer(with_settings(flags, work), as_json)
