"""The commands `journal …`, `token …` and `replicas`.

`journal` checks the journal, backs it up, and saves the readable part of a damaged one. `token`
creates, lists and revokes tokens for HTTP. `replicas` lists the servers that share a journal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from .shared import Failed, OptionsFirst, Refused, json_option, print_answer, with_settings

if TYPE_CHECKING:
    from ..auth.caller import Scope
    from ..auth.tokens import TokenRecord, Tokens
    from ..results import Answer
    from ..settings.settings import Settings

__all__ = ["journal", "replicas", "token"]

T = TypeVar("T")

_new_file = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group(cls=OptionsFirst)
@click.option("--state-dir", metavar="DIR", help="Where threads and history are kept.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal, if it is not in the state directory.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.pass_context
def journal(ctx: click.Context, **flags: str | None) -> None:
    """Check, back up or salvage the file that holds all threads."""
    ctx.obj = flags


@journal.command()
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check the whole journal for damage. Servers may be running.

    The exit code is 1 if something is damaged.
    """
    from ..threads.journal_files import check as work

    answer = with_settings(ctx.obj, work)
    print_answer(answer, as_json)
    ctx.exit(1 if answer.failed else 0)


@journal.command()
@_new_file
@json_option
@click.pass_obj
def backup(flags: dict[str, str | None], file: Path, as_json: bool) -> None:
    """Copy the journal to a new FILE. Servers may be running.

    Only you can read FILE. Encrypted data stays encrypted.
    """
    from ..threads.journal_files import backup as work

    print_answer(with_settings(flags, lambda settings: work(settings, file)), as_json)


@journal.command()
@_new_file
@json_option
@click.pass_obj
def salvage(flags: dict[str, str | None], file: Path, as_json: bool) -> None:
    """Save the readable part of a damaged journal to a new FILE.

    Each thread is saved up to its last step before the damage. The journal is not changed. Stop all
    servers first.
    """
    from ..threads.journal_files import salvage as work

    print_answer(with_settings(flags, lambda settings: work(settings, file)), as_json)


_SCOPES = ("drive", "delegate", "approve", "admin", "remember")
_DEFAULT_SCOPES = ("drive", "delegate")
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,5})([mhd])", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time; write one such as 90m, 12h or 30d")
    return float(found[1]) * _UNITS[found[2]]


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(one.strip() for one in (value or "").split(",")))
    if value is not None and not all(names):
        raise click.BadParameter(f"{value!r} names no agents; write them like scout,main")
    return tuple(filter(None, names))


@click.group(cls=OptionsFirst)
@click.option(
    "--state-dir", metavar="DIR", help="State directory of the server, where tokens are kept."
)
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option(
    "--replicas", is_flag=True, default=None, help="Tokens of replicas, in the journal's database."
)
@click.option("--journal", metavar="URL", help="The journal that the replicas share.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.pass_context
def token(ctx: click.Context, **flags: Any) -> None:
    """Create, list and revoke tokens for `serve --auth token`.

    Running servers apply changes within a second.
    """
    ctx.obj = flags


@token.command()
@click.argument("principal")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What the token allows. Repeatable.  [drive, delegate]",
)
@click.option(
    "--agents",
    "agents",
    callback=_names,
    metavar="NAMES",
    help="Agents that the token may give goals to, such as scout,main.  [all]",
)
@click.option(
    "--expires",
    callback=_seconds,
    metavar="TIME",
    help="When it expires, such as 12h or 30d.  [never]",
)
@json_option
@click.pass_context
def create(
    ctx: click.Context,
    principal: str,
    scopes: tuple[str, ...],
    agents: tuple[str, ...],
    expires: float | None,
    as_json: bool,
) -> None:
    """Create a token for PRINCIPAL and print it.

    Whoever has the token sees the threads and runs of PRINCIPAL. It is shown only once; only its
    hash is stored. `approve` is not a default scope, so that a model cannot approve its own calls;
    give it to clients that a person uses. With `remember`, which `admin` does not include, such a
    client can also make a decision last. `--agents` hides all other agents. The tools that clients
    drive belong to `main`.
    """
    if not principal.strip() or not principal.isprintable():
        raise Refused("a principal needs a name of printable characters. Nothing was done.")
    wanted = cast("tuple[Scope, ...]", scopes or _DEFAULT_SCOPES)
    if "remember" in wanted and not {"approve", "admin"} & {*wanted}:
        raise Refused(
            "the scope `remember` is for those who decide: add `--scope approve`. Nothing was done."
        )
    from ..auth.tokens import new_token

    record, secret = new_token(principal.strip(), wanted, expires, agents)
    _with_tokens(ctx, lambda tokens: tokens.add(record))
    if as_json:
        click.echo(json.dumps({**_shown(record), "token": secret}))
        return
    click.echo(secret)
    click.echo(
        f"Token {record.id} for {record.principal}: {', '.join(record.scopes)}{_bound(record)}. "
        "Clients send it "
        f"as `Authorization: Bearer …`; `token revoke {record.id}` ends it.",
        err=True,
    )


@token.command("list")
@json_option
@click.pass_context
def list_tokens(ctx: click.Context, as_json: bool) -> None:
    """List tokens without showing them."""
    records = _with_tokens(ctx, lambda tokens: tokens.all())
    if as_json:
        click.echo(json.dumps([_shown(one) for one in records]))
        return
    from ..results import moment

    for one in records:
        ends = "never ends" if one.expires_at is None else f"ends {moment(one.expires_at)}"
        expired = " (expired)" if one.is_expired else ""
        shown = f"{one.id}  {one.principal}  {','.join(one.scopes)}  {ends}{expired}"
        click.echo(f"{shown}{_bound(one)}")
    if not records:
        click.echo("There are no tokens.", err=True)


@token.command()
@click.argument("token_id")
@click.pass_context
def revoke(ctx: click.Context, token_id: str) -> None:
    """Revoke a token by its id. Runs that it started continue."""
    record = _with_tokens(ctx, lambda tokens: tokens.revoke(token_id))
    click.echo(f"Token {record.id} of {record.principal} is revoked.")


def _with_tokens(ctx: click.Context, work: Callable[[Tokens], Awaitable[T]]) -> T:
    """Load the settings from flags, environment and file, and call `work` with their tokens."""

    async def with_tokens(settings: Settings) -> T:
        from ..auth.shared_state import open_tokens
        from ..auth.tokens import TokenError

        try:
            async with open_tokens(settings) as tokens:
                return await work(tokens)
        except TokenError as error:
            raise Failed(str(error)) from None

    return with_settings(ctx.obj, with_tokens)


def _bound(record: TokenRecord) -> str:
    return f"; agents: {', '.join(record.agents)}" if record.agents else ""


def _shown(record: TokenRecord) -> dict[str, Any]:
    shown = asdict(record)
    del shown["digest"]
    return {**shown, "scopes": list(record.scopes), "agents": list(record.agents)}


@click.command()
@click.option("--state-dir", metavar="DIR", help="Where this command keeps its lock.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal that the servers share.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@json_option
def replicas(as_json: bool, **flags: str | None) -> None:
    """Show the servers that share a journal.

    Also shows when each server started, and its current runs.
    """

    async def listed(settings: Settings) -> Answer:
        from ..operations.replica_listing import list_replicas

        return await list_replicas(settings)

    answer = with_settings({**flags, "replicas": "true"}, listed)
    click.echo(json.dumps(answer.data, indent=2) if as_json else answer.text)
