"""Shared code of all commands: output, errors, settings, and `--connect URL`.

Text from models, tools and files is cleaned before it is written to a terminal. With `--connect`, a
command sends requests to a server instead of using the journal.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click

from ..terminal import clean, forget_output

if TYPE_CHECKING:
    from ..results import Answer
    from ..settings.settings import Settings

__all__ = [
    "STATUSES",
    "Commands",
    "Failed",
    "Interrupted",
    "OptionsFirst",
    "Refused",
    "at_server",
    "connectable",
    "echo",
    "is_elsewhere",
    "json_option",
    "output_file",
    "print_answer",
    "use_utf8",
    "while_somebody_reads",
    "with_settings",
]

STATUSES = ("queued", "running", "needs_approval", "paused", "done", "failed", "cancelled")
"""The statuses of a run."""

T = TypeVar("T")
Admin = TypeVar("Admin")

INTERRUPTED = 130
"""Exit code after Ctrl-C; shells use the same for SIGINT."""

NO_READER = 141
"""Exit code if the program that reads the output has ended; shells use the same for SIGPIPE."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def use_utf8() -> None:
    """Read and write UTF-8 in pipes and files, on every system and whatever the locale is.

    A terminal keeps its encoding; what it cannot show is replaced, as are bytes of the input that
    are not UTF-8.
    """
    streams: list[Any] = [sys.stdin, sys.stdout, sys.stderr]
    for one in streams:
        if isinstance(one, TextIOWrapper) and (one is sys.stdin or one.encoding.lower() != "utf-8"):
            one.reconfigure(encoding=None if one.isatty() else "utf-8", errors="replace")


def echo(text: str, *, nl: bool = True) -> None:
    """Print a text; on a terminal, control characters are escaped."""
    click.echo(clean(text) if sys.stdout.isatty() else text, nl=nl)


def print_answer(answer: Answer, as_json: bool) -> None:
    """Print an answer, as text or as JSON."""
    if as_json:
        click.echo(json.dumps(answer.data, ensure_ascii=False, indent=2))
    else:
        echo(answer.text)


@contextmanager
def output_file(file: str) -> Generator[TextIO]:
    """Open a new file that only this user can read, or standard output.

    The file is deleted if writing it fails.
    """
    if file == "-":
        stdout: Any = sys.stdout
        if isinstance(sys.stdout, TextIOWrapper):
            stdout.reconfigure(encoding="utf-8", newline="\n")
        yield stdout
        return

    def private(path: str, how: int) -> int:
        return os.open(path, how, 0o600)

    try:
        output = open(file, "x", encoding="utf-8", newline="\n", opener=private)  # noqa: SIM115 - closed below
    except FileExistsError:
        raise Failed(f"{file} exists already. Nothing was written. Name a new file.") from None
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror}. Nothing was done.") from None
    try:
        with output:
            yield output
    except BaseException as error:
        os.unlink(file)
        if isinstance(error, OSError):  # such as a full disk, noticed when the file was closed
            raise Failed(
                f"{file} could not be written: {error.strerror}. It was deleted again, and nothing "
                "else was changed. Make room on its disk, or name another file."
            ) from None
        raise


@contextmanager
def while_somebody_reads() -> Generator[None]:
    """End the process silently once the program that reads the output has ended.

    On a full disk, to which the output may be redirected, it ends with a message.
    """
    try:
        yield
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            forget_output(1)
            name = error.filename or "the output"
            click.echo(
                f"deep-agent-mcp: {name} could not be written: {error.strerror}. Make room on the "
                "disk, and try again.",
                err=True,
            )
            sys.exit(1)
        if not _is_about_reader(error):
            raise
        forget_output()
        sys.exit(NO_READER)


def _is_about_reader(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(_is_about_reader, group.exceptions))
    if isinstance(error, SystemExit):  # rich converts the error to it
        return isinstance(error.__context__, BrokenPipeError)
    return isinstance(error, BrokenPipeError)


class _Suggesting(click.Group):
    """Group that suggests the nearest command for an unknown one."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command that the arguments name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=2, cutoff=0.6)
            if not near:
                raise
            said = f"{error.message} Did you mean {' or '.join(near)}?"
            raise click.UsageError(said, error.ctx) from None


@contextmanager
def _until_interrupted() -> Generator[None]:
    """End the process silently after Ctrl-C, also at a question."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort) as error:
        # At a question, click raises Abort: for Ctrl-C, for the end of the input, and for a no.
        if isinstance(error, click.Abort) and not isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)  # ends the line with the terminal's ^C
        sys.exit(INTERRUPTED)


class Commands(_Suggesting):
    """Group of all commands; each ends silently after Ctrl-C, or if nobody reads its output."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; this may print the help."""
        with while_somebody_reads(), _until_interrupted():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with while_somebody_reads(), _until_interrupted():
            return super().invoke(ctx)


class Failed(click.ClickException):
    """A command that failed; exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the message without click's prefix."""
        click.echo(f"deep-agent-mcp: {clean(self.message)}", file=file or sys.stderr)


class Refused(Failed):
    """A command that did nothing, because options or settings are invalid; exit code 2."""

    exit_code = 2


class Interrupted(Failed):
    """A command that did nothing, because Ctrl-C came first; exit code 130."""

    exit_code = INTERRUPTED


def with_settings(flags: Mapping[str, Any], work: Callable[[Settings], Awaitable[T]]) -> T:
    """Load the settings from flags, environment and file, and call `work` with them.

    Raises:
        Refused: A setting or an agent file is wrong, or a package is missing.
        Failed: It failed with another expected error.
    """
    import logging

    import anyio

    from ...harness.backends.base import FileError
    from ...harness.errors import AgentBuildError, HarnessError
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings
    from ..settings.state_dir import StateDirError
    from ..terminal.views import CleanLogs

    logging.basicConfig(handlers=[CleanLogs(sys.stderr)], format="%(message)s")
    given = dict(flags)
    config = given.pop("config")

    async def main() -> T:
        return await work(load_settings(given, os.environ, config=config))

    try:
        return anyio.run(main)
    except BrokenPipeError:  # the reader of the output has ended; `while_somebody_reads` handles it
        raise
    except ImportError as error:
        if "needs the extra" not in str(error):
            raise
        raise Refused(f"{error}. Nothing was done.") from None
    except (SettingsError, AgentBuildError) as error:
        raise Refused(str(error)) from None
    except (StateDirError, HarnessError, FileError, OSError) as error:
        raise Failed(str(error)) from None


# --- servers elsewhere -------------------------------------------------------------------


class OptionsFirst(_Suggesting):
    """A group whose options must precede the command; the error for others explains that."""

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
    """Add `--connect` and `--token` to a command, as further flags.

    Options that cannot be combined are refused before the command does anything.
    """

    @wraps(command)
    def checked(*args: Any, **kwargs: Any) -> Any:
        is_elsewhere(click.get_current_context().obj)
        return command(*args, **kwargs)

    return _connect(_token(checked))


def is_elsewhere(flags: Mapping[str, str | None]) -> bool:
    """Whether a command uses a server instead of the journal.

    Raises:
        Refused: The flags name both.
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
    opened: Callable[[str, str | None], AbstractAsyncContextManager[Admin]],
    work: Callable[[Admin], Awaitable[T]],
) -> T:
    """Call `work` with a connection to the server of `--connect`.

    Raises:
        Refused: The server cannot be reached, or lets nobody in with this token.
        Failed: The server refused the request, or was lost.
    """
    import anyio

    from ...harness._internal.concurrency import leaves
    from ..terminal.states import LinkError, NotStarted

    done: list[T] = []
    refused: list[BaseException] = []

    async def main() -> None:
        token = flags.get("token") or os.environ.get("DEEP_AGENT_TOKEN")
        async with opened(flags["connect"] or "", token) as admin:
            done.append(await work(admin))

    try:
        anyio.run(main)
    except* LinkError as group:  # raised through the task groups of the connection
        refused += leaves(group)
    if refused:
        kind = Refused if isinstance(refused[0], NotStarted) else Failed
        raise kind(str(refused[0]))
    return done[0]
