"""`deep-agent-mcp completion …`: completion of commands, options and files in the user's shell.

Click generates the scripts. bash and fish load them from a directory of the user. zsh, and bash
without the package bash-completion, need a line in the shell's start-up file.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from .shared import Failed, Refused

__all__ = ["completion"]

NAME = "deep-agent-mcp"
SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_DEEP_AGENT_MCP_COMPLETE"
_LOADERS = (
    "/usr/share/bash-completion/bash_completion",
    "/etc/bash_completion",
    "/usr/local/etc/profile.d/bash_completion.sh",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
)
"""Possible paths of bash-completion."""

_shell = click.argument("shell", required=False, type=click.Choice(SHELLS))


@click.group()
def completion() -> None:
    """Turn on completion with the Tab key, in bash, zsh or fish."""


@completion.command()
@_shell
@click.pass_context
def show(ctx: click.Context, shell: str | None) -> None:
    """Print the script for SHELL, by default the shell you use."""
    click.echo(_script(ctx, shell or _own_shell()))


@completion.command()
@_shell
@click.pass_context
def install(ctx: click.Context, shell: str | None) -> None:
    """Install completion for SHELL, by default the shell you use."""
    shell = shell or _own_shell()
    file, start_up = _places(shell)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_script(ctx, shell), encoding="utf-8")
        click.echo(f"Completion for {shell}: {file}")
        if start_up is not None and _line(file) not in _text(start_up):
            with start_up.open("a", encoding="utf-8") as opened:
                opened.write(f"\n{_line(file)}\n")
            click.echo(f"A line in {start_up} loads it.")
    except OSError as error:
        raise Failed(f"{error.filename or file} cannot be written: {error.strerror}.") from None
    click.echo("It works in shells that you start from now on.")


@completion.command()
@_shell
def remove(shell: str | None) -> None:
    """Remove completion for SHELL, by default the shell you use."""
    shell = shell or _own_shell()
    file, start_up = _places(shell)
    try:
        file.unlink(missing_ok=True)
        if start_up is not None and _line(file) in _text(start_up):
            left = _text(start_up).replace(f"\n{_line(file)}\n", "")
            start_up.write_text(left, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{error.filename or file} cannot be changed: {error.strerror}.") from None
    click.echo(f"Completion for {shell} is removed.")


def _own_shell() -> str:
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise Refused(
            f"completion works in {', '.join(SHELLS)}; your shell is {shell or 'not known'}. "
            "Nothing was changed. Name one after the command."
        )
    return shell


def _script(ctx: click.Context, shell: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    try:
        return kind(root, {}, NAME, _VARIABLE).source()
    except RuntimeError as error:  # a bash that is too old
        raise Failed(f"{error} Nothing was changed.") from None


def _places(shell: str) -> tuple[Path, Path | None]:
    """Return the script's path, and the start-up file that must load it, or None if not needed."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return config / "fish" / "completions" / f"{NAME}.fish", None
    if shell == "zsh":
        folder = Path(os.environ.get("ZDOTDIR") or home)
        return data / NAME / "completion.zsh", folder / ".zshrc"
    if any(Path(one).exists() for one in _LOADERS):
        return data / "bash-completion" / "completions" / NAME, None
    return data / NAME / "completion.bash", home / ".bashrc"


def _line(file: Path) -> str:
    if file.suffix == ".zsh":  # the script uses `compdef`, which `compinit` defines
        return f"autoload -Uz compinit && compinit && source '{file}'  # {NAME}"
    return f"source '{file}'  # {NAME}"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""
