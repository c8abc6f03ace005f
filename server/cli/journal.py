"""`deep-agent-mcp journal …`: check the journal, copy it, save what is left of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .work import with_settings

if TYPE_CHECKING:
    from ..results import Answer

__all__ = ["journal"]

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_new_file = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group()
@click.option("--state-dir", metavar="DIR", help="Where threads and history are kept.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal, if it is not in that directory.")
@click.option("--journal-url-file", metavar="FILE", help="Read that URL from FILE.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.pass_context
def journal(ctx: click.Context, **flags: str | None) -> None:
    """Check the file that holds all threads, back it up, or save what is left of a damaged one."""
    ctx.obj = flags


@journal.command()
@_as_json
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Read all of the journal and say what is damaged. Servers may be running.

    The exit code is 1 if something is damaged.
    """
    from ..threads.journal_files import check as work

    answer = with_settings(ctx.obj, work)
    _print(answer, as_json)
    ctx.exit(1 if answer.failed else 0)


@journal.command()
@_new_file
@_as_json
@click.pass_obj
def backup(flags: dict[str, str | None], file: Path, as_json: bool) -> None:
    """Copy the journal to a new FILE, as it is at one moment. Servers may be running.

    Only you can read FILE. What is encrypted stays so.
    """
    from ..threads.journal_files import backup as work

    _print(with_settings(flags, lambda settings: work(settings, file)), as_json)


@journal.command()
@_new_file
@_as_json
@click.pass_obj
def salvage(flags: dict[str, str | None], file: Path, as_json: bool) -> None:
    """Save what can be read of a damaged journal to a new FILE, and say what is lost.

    Each thread is saved up to its last step before the damage. The journal stays as it is. No
    server may run meanwhile.
    """
    from ..threads.journal_files import salvage as work

    _print(with_settings(flags, lambda settings: work(settings, file)), as_json)


def _print(answer: Answer, as_json: bool) -> None:
    click.echo(json.dumps(answer.data, ensure_ascii=False, indent=2) if as_json else answer.text)
