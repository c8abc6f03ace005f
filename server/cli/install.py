"""The commands `install` and `doctor`, for clients of this server.

`install` adds this server to a client. `doctor` checks that it works there, checks this machine,
and tells the user how to fix problems.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import click

from .shared import Refused, json_option

if TYPE_CHECKING:
    from ..doctor import Examination, Finding, Handshake
    from ..install.clients import Client, Scope
    from ..install.installer import Change, PathOption, Placement, Request
    from ..install.machine import Machine
    from ..settings.toolsets import Toolset

__all__ = ["INSTALLABLE", "ServeOptions", "doctor", "install"]


INSTALLABLE = (
    "claude-desktop",
    "claude-code",
    "cursor",
    "vscode",
    "codex",
    "gemini",
    "opencode",
)

_PATHS = ("DIR", "FILE")
_OPTION = "--toolsets"
_UNKNOWN_YET = ("${", "{env:")


class _ClientName(click.Choice):  # pyright: ignore[reportMissingTypeArgument]
    """A client's name; an error for an unknown one suggests the closest."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        """Return the error for an unknown name, with similar names."""
        from difflib import get_close_matches

        given = str(value).lower()
        like = [one for one in INSTALLABLE if given and given in one]
        like = like or get_close_matches(given, INSTALLABLE, n=2, cutoff=0.5)
        said = f"Did you mean {' or '.join(like)}? " if like else ""
        return f"{value!r} is not a client. {said}Clients: {', '.join(INSTALLABLE)}."


@click.command()
@click.argument("client", type=_ClientName(INSTALLABLE), metavar="CLIENT")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVE OPTIONS…]")
@click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="For all your projects, or for the one in this directory.",
)
@click.option("--name", default="deep-agent", show_default=True, help="What the client calls it.")
@click.option(
    "--print", "only_print", is_flag=True, help="Show the file and the entry; change nothing."
)
@click.option("--remove", is_flag=True, help="Remove the entry, and nothing else.")
@click.option(
    "--with-key",
    is_flag=True,
    help="Write ANTHROPIC_API_KEY into the entry, if only you can read the file.",
)
@click.option(
    "--toolsets",
    multiple=True,
    metavar="NAMES",
    help="The tools to offer, as for `serve`.  [all, or what suits a coding agent]",
)
@click.pass_context
def install(
    ctx: click.Context,
    client: str,
    options: tuple[str, ...],
    scope: Scope,
    name: str,
    only_print: bool,
    remove: bool,
    with_key: bool,
    toolsets: tuple[str, ...],
) -> None:
    """Add this server to CLIENT's list of MCP servers.

    CLIENT is claude-desktop, claude-code, cursor, vscode, codex, gemini or opencode.

    Everything after `--` is passed to `serve`, such as `-- --root ~/notes`. Other servers and
    comments in the file are kept, and so is a backup. The API key is not written into the file:
    the entry names its variable if the client supports that.
    """
    from ..install.installer import Change, InstallError, Placement
    from ..install.machine import ConfigFileError, Machine, NotInstalled

    machine = Machine.here()
    options = (*(f"--toolsets={one}" for one in toolsets), *options)
    try:
        placement = Placement.of(client, scope, name)
        if remove:
            if options or with_key:
                raise Refused(
                    "--remove takes no options of `serve`, no --toolsets and no --with-key."
                )
            change = Change.removal(placement, machine)
        else:
            change = Change.install(_request(ctx, placement, options, with_key, machine), machine)
        if only_print:
            _show(change, remove)
        else:
            _carry_out(change, placement, remove)
    except (InstallError, ConfigFileError, NotInstalled) as error:
        raise Refused(str(error)) from None


def _request(
    ctx: click.Context,
    placement: Placement,
    options: Sequence[str],
    with_key: bool,
    machine: Machine,
) -> Request:
    from ..install.clients import KEY_VARIABLE
    from ..install.installer import Request, command_words, find_entry

    serve = ServeOptions.of(ctx, options)
    tools = ToolChoice()
    if not serve.chooses_tools:
        _, held = find_entry(placement, machine)
        tools = ToolChoice.of(placement.client, command_words(held or {}))
        try:
            serve = ServeOptions.of(ctx, (*tools.options, *options))
        except Refused as error:  # for example, tools for commands while commands are off
            raise Refused(f"{error}\n{tools.note}") from None
    model = str(serve.flags.get("model") or "")
    key = os.environ.get(KEY_VARIABLE) if with_key else None
    if with_key and not key:
        raise Refused(f"--with-key: {KEY_VARIABLE} is not set here. Nothing was changed.")
    keyless = model.startswith(("scripted:", "sampling"))
    return Request(placement, list(serve.words()), key, not keyless, tools.note)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Options of `serve` that choose the offered tools.

    Attributes:
        options: The command-line words to add.
        note: A note for the operator; empty for none.
    """

    options: Sequence[str] = ()
    note: str = ""

    @classmethod
    def of(cls, client: Client, words: Sequence[str]) -> ToolChoice:
        """Choose the tools for a client, if the operator has chosen none.

        Args:
            client: The client.
            words: The command of the client's existing entry; empty for none.
        """
        from ..settings.toolsets import TOOLSETS

        chosen = ",".join(_chosen(words))
        if chosen:
            return cls(
                (_OPTION, chosen),
                f"The entry keeps its tools ({_OPTION} {chosen}); choose others with {_OPTION}.",
            )
        if not client.toolsets:
            return cls()
        names = dict.fromkeys(
            name for one in client.toolsets for name in TOOLSETS[cast("Toolset", one)]
        )
        return cls(
            (_OPTION, ",".join(client.toolsets)),
            f"{client.title} has its own todo list, file tools and shell, so it is offered "
            f"only {', '.join(names)}. To offer all tools, add {_OPTION} all.",
        )


def _chosen(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == _OPTION:
            yield value if equals else following


class ServeOptions:
    """Options of `serve` after a `--`.

    Attributes:
        given: The command-line words.
        flags: Their values by parameter, for `load_settings`.
        config: The value of `--config`.
        chooses_tools: Whether the options, or the configuration file, choose the offered tools;
            set by `check`.
    """

    def __init__(self, command: click.Command, given: Sequence[str]) -> None:
        try:
            parsed = command.make_context("serve", list(given))
        except click.UsageError as error:
            raise Refused(
                f"`serve` refuses an option after `--`: {error.format_message()} Nothing was "
                "changed; `deep-agent-mcp serve --help` lists its options."
            ) from None
        self.given = tuple(given)
        self.flags: dict[str, object] = dict(parsed.params)
        self.config = cast("str | None", self.flags.pop("config", None))
        self.application = cast("str | None", self.flags.pop("application", None))
        self.flags.pop("reload", None)
        self.chooses_tools = False
        self._by_option = {name: one for one in command.params for name in one.opts}

    @classmethod
    def of(cls, ctx: click.Context, given: Sequence[str]) -> ServeOptions:
        """Parse and check the options of a client's entry: they must be valid for stdio."""
        command = cast(click.Group, ctx.find_root().command).commands["serve"]
        options = cls(command, given)
        if options.flags.get("transport") not in (None, "stdio"):
            raise Refused(
                "clients start the server on stdio; --transport is for servers that you start. "
                "Nothing was changed. For such a server give the client its URL."
            )
        options.check()
        return options

    def check(self) -> None:
        """Refuse values that the server would refuse, except variables that the client replaces."""
        from ..settings.settings import SettingsError
        from ..settings.sources import load_settings

        known = {name: value for name, value in self.flags.items() if not _is_unknown(value)}
        try:
            settings = load_settings(known, {}, config=self.config)
        except SettingsError as error:
            raise Refused(f"{error}\nNothing was changed.") from None
        chosen = (settings.toolsets, settings.exclude_tools, settings.read_only)
        self.chooses_tools = any(chosen)

    def words(self) -> Iterator[str | PathOption]:
        """Yield the command-line words, with paths as `PathOption`."""
        from ..install.installer import PathOption

        words = iter(self.given)
        for word in words:
            name, equals, value = word.partition("=")
            option = self._by_option.get(name)
            is_path = option is not None and option.metavar in _PATHS
            if equals:
                yield PathOption(value, name + "=") if is_path else word
                continue
            yield word
            if option is not None and not cast(click.Option, option).is_flag:
                value = next(words)
                yield PathOption(value) if is_path else value


def _is_unknown(value: object) -> bool:
    values = cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,)
    return any(mark in str(one) for one in values for mark in _UNKNOWN_YET)


def _show(change: Change, remove: bool) -> None:
    click.echo(f"File: {change.file.path}", err=True)
    if remove:
        click.echo("It would lose the entry." if change.is_needed else "There is no entry.")
        return
    if not change.is_needed:
        click.echo("It has this entry already.", err=True)
    click.echo(change.snippet.rstrip("\n"))
    if change.note:
        click.echo(change.note, err=True)


def _carry_out(change: Change, placement: Placement, remove: bool) -> None:
    title, path = placement.client.title, change.file.path
    if not change.is_needed:
        state = "has no entry" if remove else "has this entry already:"
        click.echo(f"{title} {state} {placement.name!r}, in {path}. Nothing was changed.")
        return
    backup = change.carry_out()
    done = "was removed from" if remove else "is in"
    click.echo(f"{placement.name} {done} {title}: {path}")
    if change.removes and not path.exists():
        click.echo("Nothing else was in the file, so it was deleted.")
    if backup is not None:
        click.echo(f"Backup of the file: {backup}")
    click.echo(placement.client.next)
    if not remove and change.note:
        click.echo(change.note)


@click.command()
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVE OPTIONS…]")
@click.option(
    "--client",
    "clients",
    type=click.Choice(INSTALLABLE),
    multiple=True,
    help="Connect as this client only. Repeatable.  [all]",
)
@click.option("--name", default="deep-agent", show_default=True, help="What clients call it.")
@click.option("--live", is_flag=True, help="Also call the model once; this costs a few tokens.")
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    options: tuple[str, ...],
    clients: tuple[str, ...],
    name: str,
    live: bool,
    as_json: bool,
) -> None:
    """Check your setup, and show how to fix problems.

    `doctor` connects the way each client does. Everything after `--` is passed to `serve`; use the
    same options as the client's entry. The servers that `doctor` starts have a temporary state
    directory, so your threads and runs are not touched. The exit code is 1 if something that you
    asked for does not work.
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
        from ...harness._internal.code_folders import import_from

        import_from(os.getcwd(), [serve.application.partition(":")[0]], first=True)
    found = _run(examination, as_json)
    ctx.exit(1 if any(one.status == "broken" for one in found) else 0)


def _run(examination: Examination, as_json: bool) -> list[Finding | Handshake]:
    """Run the examination; print each finding immediately, or all as JSON at the end."""
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

        from ..doctor import Report

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
