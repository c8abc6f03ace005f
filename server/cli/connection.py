"""`--connect URL` of commands that otherwise work on a journal."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import click

from .output import Failed, Refused

__all__ = ["OptionsFirst", "at_server", "connectable", "is_elsewhere"]

T = TypeVar("T")
Desk = TypeVar("Desk")


class OptionsFirst(click.Group):
    """A group whose options go before its commands, and which says so where they do not."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            own = {name for one in self.params for name in one.opts}
            if error.option_name not in own:
                raise
            raise click.UsageError(
                f"{error.option_name} goes before the command: {ctx.command_path} "
                f"{error.option_name} … {ctx.invoked_subcommand}",
                error.ctx,
            ) from None


def _kept(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.obj[param.name] = value


_connect = click.option(
    "--connect",
    metavar="URL",
    expose_value=False,
    callback=_kept,
    help="Ask this server, such as http://host:8000/mcp.",
)
_token = click.option(
    "--token",
    metavar="TOKEN",
    expose_value=False,
    callback=_kept,
    help="For --connect.  [DEEP_AGENT_TOKEN]",
)


def connectable(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--connect` and `--token`, which it finds among its flags."""
    return _connect(_token(command))


def is_elsewhere(flags: Mapping[str, str | None]) -> bool:
    """Whether a command shall ask a server instead of a journal.

    Raises:
        Refused: Flags say both.
    """
    given = {name for name, value in flags.items() if value is not None}
    if "connect" not in given:
        if "token" in given:
            raise Refused("--token is for --connect URL, which is missing. Nothing was done.")
        return False
    if others := sorted(given - {"connect", "token"}):
        named = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise Refused(f"{named}: with --connect, the server knows its journal. Leave it out.")
    return True


def at_server(
    flags: Mapping[str, str | None],
    opened: Callable[[str, str | None], AbstractAsyncContextManager[Desk]],
    work: Callable[[Desk], Awaitable[T]],
) -> T:
    """Do some work at the server of `--connect`.

    Raises:
        Failed: The server refused it, or cannot be reached.
    """
    import anyio

    from ...harness._internal.concurrency import leaves
    from ..terminal.states import LinkError

    done: list[T] = []
    refused: list[BaseException] = []

    async def main() -> None:
        token = flags.get("token") or os.environ.get("DEEP_AGENT_TOKEN")
        async with opened(flags["connect"] or "", token) as desk:
            done.append(await work(desk))

    try:
        anyio.run(main)
    except* LinkError as group:  # which leaves the task groups of the connection
        refused += leaves(group)
    if refused:
        raise Failed(str(refused[0]))
    return done[0]
