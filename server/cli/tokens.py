"""`deep-agent-mcp token …`: creates, lists and revokes tokens for HTTP."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from ..auth.caller import Scope
    from ..auth.tokens import TokenFile, TokenRecord

__all__ = ["token"]

_SCOPES = ("drive", "delegate", "approve", "admin")
_DEFAULT_SCOPES = ("drive", "delegate")
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Failed(click.ClickException):
    """One readable message on stderr and exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the message without the frame click would draw."""
        click.echo(f"deep-agent-mcp: {self.message}", file=file or sys.stderr)


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,5})([mhd])", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no time; write one like 90m, 12h or 30d")
    return float(found[1]) * _UNITS[found[2]]


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(one.strip() for one in (value or "").split(",")))
    if value is not None and not all(names):
        raise click.BadParameter(f"{value!r} names no agents; write them like scout,main")
    return tuple(filter(None, names))


@click.group()
@click.option("--state-dir", metavar="DIR", help="The server's, where its tokens are kept.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.pass_context
def token(ctx: click.Context, config: str | None, **flags: str | None) -> None:
    """Make and revoke the tokens of a server that runs with `--auth token`.

    A running server takes changes over within a second.
    """
    ctx.obj = (flags, config)


@token.command()
@click.argument("principal")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What its bearer may do. Repeatable.  [drive, delegate]",
)
@click.option(
    "--agents",
    "agents",
    callback=_names,
    metavar="NAMES",
    help="Agents its bearer may give goals to, such as scout,main.  [all]",
)
@click.option("--expires", callback=_seconds, metavar="TIME", help="Such as 12h or 30d.  [never]")
@_as_json
@click.pass_context
def create(
    ctx: click.Context,
    principal: str,
    scopes: tuple[str, ...],
    agents: tuple[str, ...],
    expires: float | None,
    as_json: bool,
) -> None:
    """Make a token for PRINCIPAL, whose threads and runs its bearer sees, and print it.

    It is shown this once: only its hash is kept. `approve` is not among the default scopes, so
    that a model does not decide what it asks; give it to a client with a person. With `--agents`
    its bearer sees no other agents; the tools that a client drives belong to `main`.
    """
    if not principal.strip() or not principal.isprintable():
        raise _Failed("a principal needs a name of printable characters. Nothing was done.")
    wanted = cast("tuple[Scope, ...]", scopes or _DEFAULT_SCOPES)
    with _tokens(ctx) as file:
        record, secret = file.create(principal.strip(), wanted, expires, agents)
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
@_as_json
@click.pass_context
def list_tokens(ctx: click.Context, as_json: bool) -> None:
    """List tokens, without the tokens themselves."""
    with _tokens(ctx) as file:
        records = file.read()
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
    """End a token by its id. What its bearer has started goes on."""
    with _tokens(ctx) as file:
        record = file.revoke(token_id)
    click.echo(f"Token {record.id} of {record.principal} is revoked.")


@contextmanager
def _tokens(ctx: click.Context) -> Generator[TokenFile]:
    from ..auth.tokens import TokenError, TokenFile
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings

    flags, config = ctx.obj
    try:
        settings = load_settings(flags, os.environ, config=config)
        yield TokenFile(settings.state_dir / "tokens.json")
    except (SettingsError, TokenError) as error:
        raise _Failed(str(error)) from None


def _bound(record: TokenRecord) -> str:
    return f"; agents: {', '.join(record.agents)}" if record.agents else ""


def _shown(record: TokenRecord) -> dict[str, Any]:
    shown = asdict(record)
    del shown["digest"]
    return {**shown, "scopes": list(record.scopes), "agents": list(record.agents)}
