"""`deep-agent-mcp threads …`: shows, exports, rewinds and deletes threads."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click

from .state import Failed, with_settings

if TYPE_CHECKING:
    from ..results import Answer
    from ..settings.settings import Settings
    from ..threads.admin import ThreadAdmin

__all__ = ["threads"]

T = TypeVar("T")

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_limit = click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a size as bytes; K, M and G stand for thousands, millions and billions of them."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)([KMG]?)", value.upper().removesuffix("B"))
    if found is None:
        raise click.BadParameter(
            f"{value!r} is not a size; write a whole number, or one like 500K or 20M"
        )
    return int(found[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[found[2]]


@click.group()
@click.option("--state-dir", metavar="DIR", help="Where threads and history are kept.")
@click.option("--root", metavar="DIR", help="Where the files of threads are; `rewind` needs it.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal, if it is not in that directory.")
@click.option("--journal-url-file", metavar="FILE", help="Read that URL from FILE.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.pass_context
def threads(ctx: click.Context, **flags: str | None) -> None:
    """Look at threads, and keep them in order.

    Works beside running servers; what would get in the way of one is refused.
    """
    ctx.obj = flags


@threads.command("list")
@_limit
@click.option("--before", type=float, help="For the next page: what the page before it names.")
@_as_json
@click.pass_obj
def list_(flags: dict[str, str | None], limit: int, before: float | None, as_json: bool) -> None:
    """List threads, last changed first."""
    _print(_within(flags, lambda office: office.list(limit, before)), as_json)


@threads.command()
@click.argument("thread")
@_limit
@click.option("--before", help="For the next page: what the page before it names.")
@click.option("--transcript", is_flag=True, help="Print the messages as Markdown instead.")
@_as_json
@click.pass_obj
def show(
    flags: dict[str, str | None],
    thread: str,
    limit: int,
    before: str | None,
    transcript: bool,
    as_json: bool,
) -> None:
    """Show a thread's todos, runs, open questions and checkpoints."""
    if transcript:
        click.echo(_within(flags, lambda office: office.transcript(thread)), nl=False)
    else:
        _print(_within(flags, lambda office: office.show(thread, limit, before)), as_json)


@threads.command()
@click.argument("run")
@click.option("--after", type=click.IntRange(0), default=0, help="Only those after this event.")
@_as_json
@click.pass_obj
def events(flags: dict[str, str | None], run: str, after: int, as_json: bool) -> None:
    """Show what a delegated run has done, as far as it is kept."""
    _print(_within(flags, lambda office: office.events(run, after)), as_json)


@threads.command()
@click.argument("thread")
@click.argument("checkpoint")
@click.option(
    "--force",
    is_flag=True,
    help="Put files back although somebody changed them since; without --root leave them.",
)
@click.pass_obj
def rewind(flags: dict[str, str | None], thread: str, checkpoint: str, force: bool) -> None:
    """Make an earlier state of a thread its newest one; files are put back too."""
    done = _within(flags, lambda office: office.rewind(thread, checkpoint, force=force))
    click.echo(f"{thread} stands where it stood after {checkpoint}; new head {done.checkpoint.id}.")
    click.echo(done.about_files())


@threads.command()
@click.argument("thread")
@click.option("--at", metavar="CHECKPOINT", help="Where the copy stands; by default at the end.")
@click.option("--to", metavar="THREAD", help="Id of the copy; made up by default.")
@click.pass_obj
def fork(flags: dict[str, str | None], thread: str, at: str | None, to: str | None) -> None:
    """Copy a thread's history into a new thread. Files on disk stay as they are."""
    click.echo(_within(flags, lambda office: office.fork(thread, at, to)))


@threads.command()
@click.argument("thread")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.pass_obj
def export(flags: dict[str, str | None], thread: str, file: str) -> None:
    """Write a thread to a new FILE, or standard output, as JSON lines.

    The export is plain text, also that of an encrypted journal. Only you can read FILE.
    """

    async def written(office: ThreadAdmin) -> bool:
        await office.export(thread, output)
        return office.encrypted

    with _output(file) as output:
        encrypted = _within(flags, written)
    if encrypted:
        name = "what was written" if file == "-" else file
        click.echo(
            f"The journal is encrypted, but {name} is not: it holds the thread in plain text. "
            "Keep it where nobody else can read it.",
            err=True,
        )


@threads.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--as", "target", metavar="THREAD", help="Id of the thread; by default the old one.")
@click.pass_obj
def import_(flags: dict[str, str | None], file: str, target: str | None) -> None:
    """Store a thread that `export` wrote; prints its id."""
    with click.open_file(file, encoding="utf-8") as opened:
        lines = cast("TextIO", opened)
        click.echo(_within(flags, lambda office: office.import_(lines, target), create=True))


@threads.command()
@click.argument("thread", required=False)
@click.option("--keep-latest", type=click.IntRange(1), help="How many of the newest stay.")
@click.option("--older-than", type=float, metavar="DAYS", help="Only those older than this go.")
@click.option(
    "--max-size",
    metavar="SIZE",
    callback=_bytes,
    help="The oldest go until a thread takes no more, such as 20M.",
)
@click.pass_obj
def prune(
    flags: dict[str, str | None],
    thread: str | None,
    keep_latest: int | None,
    older_than: float | None,
    max_size: int | None,
) -> None:
    """Remove old checkpoints of a thread, or of all. States that stay are whole."""
    if keep_latest is None and older_than is None and max_size is None:
        raise click.UsageError(
            "say what shall go: --keep-latest N, --older-than DAYS, --max-size SIZE"
        )
    before = None if older_than is None else time.time() - older_than * 86_400
    removed = _within(flags, lambda office: office.prune(thread, keep_latest, before, max_size))
    click.echo(f"Checkpoints removed: {removed}.")


@threads.command()
@click.argument("thread", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(flags: dict[str, str | None], thread: tuple[str, ...], yes: bool) -> None:
    """Delete threads with their history and background tasks. Files on disk stay as they are."""
    if not yes:
        click.confirm(f"Delete {', '.join(thread)} for good?", abort=True)
    _within(flags, lambda office: office.delete(thread))
    click.echo(f"Deleted: {', '.join(thread)}.")


@threads.command("new-key")
def new_key() -> None:
    """Print a new key to encrypt the journal with.

    Keep it in a file that only you can read, and name that file with --journal-key-file. Without
    the key nobody can read the journal.
    """
    from ...harness.checkpoint.keyring import Keyring

    click.echo(Keyring.generate())


@threads.command()
@click.option("--plain", is_flag=True, help="Encrypt what is not encrypted so far, too.")
@click.pass_obj
def seal(flags: dict[str, str | None], plain: bool) -> None:
    """Encrypt all threads with the first of the keys.

    For new keys: write the new one in front of the old ones, `seal`, then remove the old ones. No
    server may run meanwhile.
    """
    from ..threads.journals import seal_journal

    done = with_settings(flags, lambda settings: seal_journal(settings, plain=plain))
    click.echo(f"Threads sealed with key {done.key_id}: {done.threads}.")
    if done.other_ids:
        click.echo(f"Not needed any more: {', '.join(done.other_ids)}.")


@threads.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def unseal(flags: dict[str, str | None], yes: bool) -> None:
    """Remove the encryption of all threads. No server may run meanwhile."""
    from ..threads.journals import unseal_journal

    if not yes:
        click.confirm("Store all threads readable for whoever can read the journal?", abort=True)
    count = with_settings(flags, unseal_journal)
    click.echo(f"Threads unsealed: {count}. Remove the key from the settings now.")


@contextmanager
def _output(file: str) -> Generator[TextIO]:
    """Open a new file for this user only, or standard output.

    The file is gone again if writing it fails.
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
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror}. Nothing was done.") from None
    try:
        with output:
            yield output
    except BaseException:
        os.unlink(file)
        raise


def _within(
    flags: dict[str, str | None],
    work: Callable[[ThreadAdmin], Awaitable[T]],
    *,
    create: bool = False,
) -> T:
    """Do some work in the state directory that flags, environment and file name."""

    async def in_office(settings: Settings) -> T:
        from ..threads.admin import ThreadAdmin

        async with ThreadAdmin.open(settings, create=create) as office:
            return await work(office)

    return with_settings(flags, in_office)


def _print(answer: Answer, as_json: bool) -> None:
    click.echo(json.dumps(answer.data, ensure_ascii=False, indent=2) if as_json else answer.text)
