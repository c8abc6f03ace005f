"""`deep-agent-mcp threads …`: shows, exports, rewinds, prunes, encrypts and deletes threads."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import click

from .shared import (
    STATUSES,
    OptionsFirst,
    Refused,
    at_server,
    connectable,
    echo,
    is_elsewhere,
    json_option,
    output_file,
    print_answer,
    with_settings,
)

if TYPE_CHECKING:
    from ..settings.settings import Settings
    from ..terminal.remote import RemoteThreads
    from ..threads.admin import ThreadAdmin

__all__ = ["threads"]

T = TypeVar("T")

_limit = click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1_000), default=50, show_default=True
)


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse a size in bytes; the units K, M and G are powers of 1,000."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)([KMG]?)", value.upper().removesuffix("B"))
    if found is None:
        raise click.BadParameter(
            f"{value!r} is not a size; write a whole number, or one like 500K or 20M"
        )
    return int(found[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[found[2]]


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a date, or a time span before now; return the Unix time."""
    if value is None:
        return None
    span = re.fullmatch(r"(\d{1,6})(m|h|d|w)", value)
    if span is not None:
        unit = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}[span[2]]
        return time.time() - int(span[1]) * unit
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a time; write one such as 30m, 2h, 3d, or 2026-01-31"
        ) from None


@click.group(cls=OptionsFirst)
@click.option("--state-dir", metavar="DIR", help="Where threads and history are kept.")
@click.option("--root", metavar="DIR", help="Where the files of threads are; `rewind` needs it.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal, if it is not in the state directory.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--replicas", flag_value="true", help="Work beside servers that share the journal.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.pass_context
def threads(ctx: click.Context, **flags: str | None) -> None:
    """Show, rewind, fork, export, prune and delete threads.

    You can use these commands while servers run; commands that would disturb a server are refused.
    """
    ctx.obj = flags


@threads.command("list")
@_limit
@click.option(
    "--before",
    metavar="VALUE",
    type=float,
    help="For the next page: the value at the end of this page.",
)
@click.option("--status", type=click.Choice(STATUSES), help="Only if the last run has this status.")
@click.option("--agent", metavar="NAME", help="Only if the last run was by this agent.")
@click.option("--since", callback=_moment, metavar="TIME", help="Such as 2h, 3d or 2026-01-31.")
@connectable
@json_option
@click.pass_obj
def list_(
    flags: dict[str, str | None],
    limit: int,
    before: float | None,
    status: str | None,
    agent: str | None,
    since: float | None,
    as_json: bool,
) -> None:
    """List threads, last changed first, with their last run and cost."""
    answer = _at(
        flags,
        lambda admin: admin.list(limit, before, status=status, agent=agent, since=since),
    )
    facts = answer.data or {}
    found = cast("Sequence[dict[str, Any]]", facts.get("threads") or ())
    if as_json or not found:
        print_answer(answer, as_json)
        return
    from ..terminal.views import THREAD_COLUMNS, print_table, thread_cells

    print_table(THREAD_COLUMNS, map(thread_cells, found))
    if "next_before" in facts:
        click.echo(f"More: --before {facts['next_before']}", err=True)


@threads.command()
@click.argument("thread")
@_limit
@click.option(
    "--before", metavar="VALUE", help="For the next page: the value at the end of this page."
)
@click.option("--transcript", is_flag=True, help="Print the messages as Markdown instead.")
@click.option("--follow", is_flag=True, help="Then print what its runs do, until Ctrl-C.")
@connectable
@json_option
@click.pass_obj
def show(
    flags: dict[str, str | None],
    thread: str,
    limit: int,
    before: str | None,
    transcript: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Show a thread's todos, runs, open questions and checkpoints."""
    if transcript:
        echo(_at(flags, lambda admin: admin.transcript(thread)), nl=False)
    else:
        print_answer(_at(flags, lambda admin: admin.show(thread, limit, before)), as_json)
    if follow:
        _follow(flags, thread, as_json=as_json)


def _follow(flags: dict[str, str | None], thread: str, *, as_json: bool) -> None:
    """Print the events of a thread's runs, as text or JSON lines, until Ctrl-C."""
    from ..terminal.steps import Steps
    from ..terminal.views import step_line

    steps = Steps()

    async def following(admin: ThreadAdmin | RemoteThreads) -> None:
        async for event in admin.follow(thread):
            if as_json:
                click.echo(json.dumps(event, ensure_ascii=False))
                continue
            for step in steps.hear(event, at_once=True):
                click.echo(step_line(step))

    with suppress(KeyboardInterrupt):
        _at(flags, following)


@threads.command()
@click.argument("run")
@click.option(
    "--after",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    help="Show only events after this one.",
)
@connectable
@json_option
@click.pass_obj
def events(flags: dict[str, str | None], run: str, after: int, as_json: bool) -> None:
    """Show the stored events of a delegated run."""
    print_answer(_at(flags, lambda admin: admin.events(run, after)), as_json)


@threads.command()
@click.argument("thread")
@click.argument("checkpoint")
@click.option(
    "--force",
    is_flag=True,
    help="Restore files even if somebody changed them since; without --root, leave files alone.",
)
@connectable
@click.pass_obj
def rewind(flags: dict[str, str | None], thread: str, checkpoint: str, force: bool) -> None:
    """Rewind a thread to an earlier state, including its files."""
    done = _at(flags, lambda admin: admin.rewind(thread, checkpoint, force=force))
    click.echo(f"{thread} is back at checkpoint {checkpoint}; new head {done.checkpoint_id}.")
    echo(done.about_files())


@threads.command()
@click.argument("thread")
@click.option("--at", metavar="CHECKPOINT", help="Checkpoint to copy up to; by default the newest.")
@click.option("--to", metavar="THREAD", help="Id of the copy; generated by default.")
@connectable
@click.pass_obj
def fork(flags: dict[str, str | None], thread: str, at: str | None, to: str | None) -> None:
    """Copy a thread's history into a new thread. Files on disk do not change."""
    if to is not None and is_elsewhere(flags):
        raise Refused(
            "--to cannot be used with --connect, because the server chooses the id. Nothing was "
            "copied. Leave it out."
        )
    click.echo(_at(flags, lambda admin: admin.fork(thread, at, to)))


@threads.command()
@click.argument("thread")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.pass_obj
def export(flags: dict[str, str | None], thread: str, file: str) -> None:
    """Write a thread to a new FILE or standard output, as JSON lines.

    The export is plain text, even if the journal is encrypted. Only you can read FILE.
    """

    async def written(admin: ThreadAdmin) -> bool:
        await admin.export(thread, output)
        return admin.encrypted

    with output_file(file) as output:
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
@click.option(
    "--as", "target", metavar="THREAD", help="Id of the thread; by default the exported one."
)
@click.pass_obj
def import_(flags: dict[str, str | None], file: str, target: str | None) -> None:
    """Import a thread from a file of `export`, and print its id."""
    with click.open_file(file, "rb") as opened:  # an import checks that each line is UTF-8
        lines = cast("BinaryIO", opened)
        click.echo(_within(flags, lambda admin: admin.import_(lines, target), create=True))


@threads.command()
@click.argument("thread", required=False)
@click.option(
    "--keep-latest",
    metavar="N",
    type=click.IntRange(1),
    help="Number of newest checkpoints to keep.",
)
@click.option(
    "--older-than", type=float, metavar="DAYS", help="Remove only checkpoints older than this."
)
@click.option(
    "--max-size",
    metavar="SIZE",
    callback=_bytes,
    help="Remove the oldest until a thread is this small, such as 20M.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def prune(
    flags: dict[str, str | None],
    thread: str | None,
    keep_latest: int | None,
    older_than: float | None,
    max_size: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove old checkpoints of a thread, or of all threads. The states that stay do not change.

    Without THREAD, it asks first.
    """
    if keep_latest is None and older_than is None and max_size is None:
        raise click.UsageError(
            "Choose what to remove: --keep-latest N, --older-than DAYS, or --max-size SIZE."
        )
    if dry_run and max_size is not None:
        raise click.UsageError("--dry-run cannot tell what --max-size would remove.")
    before = None if older_than is None else time.time() - older_than * 86_400
    if dry_run or (thread is None and not yes):
        whole = "It would remove checkpoints of any thread that is larger than this"
        if max_size is None:
            count, of = _within(flags, lambda one: one.prunable(thread, keep_latest, before))
            whole = f"Checkpoints to remove: {count}, of {of} threads"
        click.echo(f"{whole}.")
        if dry_run:
            return
        click.confirm("Remove them for good?", abort=True)
    removed = _within(flags, lambda admin: admin.prune(thread, keep_latest, before, max_size))
    click.echo(f"Checkpoints removed: {removed}.")


@threads.command()
@click.argument("thread", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connectable
@click.pass_obj
def delete(flags: dict[str, str | None], thread: tuple[str, ...], yes: bool) -> None:
    """Delete threads with their history and background tasks. Files on disk do not change."""
    if not yes:
        click.confirm(f"Delete {', '.join(thread)} for good?", abort=True)
    _at(flags, lambda admin: admin.delete(thread))
    click.echo(f"Deleted: {', '.join(thread)}.")


@threads.command("new-key")
def new_key() -> None:
    """Print a new key that encrypts the journal.

    Store it in a file that only you can read, and pass that file with --journal-key-file. Without
    the key, nobody can read the journal.
    """
    from ...harness.checkpoint.keyring import Keyring

    click.echo(Keyring.generate())


@threads.command()
@click.option("--plain", is_flag=True, help="Also encrypt what is not encrypted yet.")
@click.pass_obj
def seal(flags: dict[str, str | None], plain: bool) -> None:
    """Encrypt all threads, schedules and logins with the first key.

    To change the key, write the new one before the old one, run `seal`, then remove the old one.
    Stop all servers first.
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
    """Remove the encryption of all threads, schedules and logins. Stop all servers first."""
    from ..threads.journals import unseal_journal

    if not yes:
        click.confirm(
            "Remove the encryption, so that whoever can read the journal can read all threads?",
            abort=True,
        )
    count = with_settings(flags, unseal_journal)
    click.echo(f"Threads unsealed: {count}. Remove the key from the settings now.")


def _at(
    flags: dict[str, str | None], work: Callable[[ThreadAdmin | RemoteThreads], Awaitable[T]]
) -> T:
    """Call `work` with the server of `--connect`, or with the journal (see `_within`)."""
    if is_elsewhere(flags):
        from ..terminal.remote import RemoteThreads

        return at_server(flags, RemoteThreads.open, work)
    return _within(flags, work)


def _within(
    flags: dict[str, str | None],
    work: Callable[[ThreadAdmin], Awaitable[T]],
    *,
    create: bool = False,
) -> T:
    """Call `work` with the state directory from flags, environment and file."""

    async def with_admin(settings: Settings) -> T:
        from ..threads.admin import ThreadAdmin

        async with ThreadAdmin.open(settings, create=create) as admin:
            return await work(admin)

    return with_settings(flags, with_admin)
