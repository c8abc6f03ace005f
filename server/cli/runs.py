"""`deep-agent-mcp runs …`: lists, shows, waits for, answers, cancels and retries runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from .shared import (
    STATUSES,
    Failed,
    OptionsFirst,
    Refused,
    at_server,
    connectable,
    is_elsewhere,
    json_option,
    print_answer,
    with_settings,
)

if TYPE_CHECKING:
    from ...harness.checkpoint.base import Interrupt, RunStatus
    from ..operations.run_admin import RunAdmin
    from ..settings.settings import Settings
    from ..terminal.questions import WholeQuestion
    from ..terminal.remote import RemoteRuns

__all__ = ["runs"]

T = TypeVar("T")


@click.group(cls=OptionsFirst)
@click.option("--state-dir", metavar="DIR", help="State directory of the server.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--journal", metavar="URL", help="The journal, if it is not in the state directory.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--replicas", flag_value="true", help="Work beside servers that share the journal.")
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.pass_context
def runs(ctx: click.Context, **flags: str | None) -> None:
    """List, show, wait for, answer, cancel and retry runs.

    You can use these commands while servers run: the server that works on a run ends or continues
    it. `deep-agent-mcp run --resume RUN` continues a run in the terminal.
    """
    ctx.obj = flags


@runs.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs with this status.")
@click.option("--thread", metavar="THREAD", help="Only runs of this thread.")
@click.option("--limit", metavar="N", type=click.IntRange(1, 1_000), default=50, show_default=True)
@connectable
@json_option
@click.pass_obj
def list_(
    flags: dict[str, str | None], status: str | None, thread: str | None, limit: int, as_json: bool
) -> None:
    """List runs, newest first."""
    wanted = cast("RunStatus | None", status)
    answer = _within(flags, lambda admin: admin.list(wanted, thread, limit))
    facts = answer.data or {}
    found = cast("Sequence[dict[str, Any]]", facts.get("runs") or ())
    if as_json or not found:
        print_answer(answer, as_json)
        return
    from ..terminal.views import RUN_COLUMNS, print_table, run_cells

    print_table(RUN_COLUMNS, map(run_cells, found))
    if facts.get("more"):
        click.echo(f"There are more: --limit, now {limit}, shows them.", err=True)


@runs.command()
@click.argument("run")
@connectable
@json_option
@click.pass_obj
def show(flags: dict[str, str | None], run: str, as_json: bool) -> None:
    """Show a run, its usage and its open questions."""
    print_answer(_within(flags, lambda admin: admin.show(run)), as_json)


@runs.command()
@click.argument("run", nargs=-1, required=True)
@click.option(
    "--reason",
    metavar="TEXT",
    help="The reason to record for the run.  [cancelled on the command line]",
)
@connectable
@json_option
@click.pass_obj
def cancel(
    flags: dict[str, str | None], run: tuple[str, ...], reason: str | None, as_json: bool
) -> None:
    """Cancel runs on any server. Their finished work is kept."""
    if reason is not None and is_elsewhere(flags):
        raise Refused(
            "--reason cannot be used with --connect, because the server records its own. Nothing "
            "was cancelled. Leave it out."
        )
    why = reason or "cancelled on the command line"
    print_answer(_within(flags, lambda admin: admin.cancel(run, why)), as_json)


@runs.command()
@click.argument("run")
@connectable
@json_option
@click.pass_obj
def retry(flags: dict[str, str | None], run: str, as_json: bool) -> None:
    """Continue a failed or paused run on a server.

    It continues from the last step. If no server is running, the next one that starts continues it.
    """
    print_answer(_within(flags, lambda admin: admin.retry(run)), as_json)


@runs.command()
@click.argument("run")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after this.")
@connectable
@json_option
@click.pass_obj
def wait(flags: dict[str, str | None], run: str, timeout: float | None, as_json: bool) -> None:
    """Wait until a run pauses or ends, and show it.

    Exit codes: 0 done, 1 failed or cancelled, 3 needs approval, 4 limit reached, 124 still at work
    after --timeout, 130 paused, or you interrupted the command.
    """
    answer = _within(flags, lambda admin: admin.wait(run, timeout))
    print_answer(answer, as_json)
    from ..terminal.states import exit_code

    facts = answer.data or {}
    sys.exit(exit_code(str(facts.get("status")), str(facts.get("reason") or "")))


@runs.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Show the calls and approve them without asking.")
@click.option("--reject", is_flag=True, help="Reject the calls instead.")
@click.option("--message", metavar="TEXT", help="With --reject: why, for the agent.")
@connectable
@json_option
@click.pass_obj
def approve(
    flags: dict[str, str | None],
    run: str,
    yes: bool,
    reject: bool,
    message: str | None,
    as_json: bool,
) -> None:
    """Approve or reject the calls of a run that wait for it.

    Each call is shown in full first. Then a server that uses the journal continues the run, or the
    next one that starts.
    """
    if yes and reject:
        raise click.UsageError("Choose one of --yes and --reject.")
    if message is not None and not reject:
        raise click.UsageError("--message says why a call is rejected. Use it with --reject.")
    asked = [one for one in _asked(flags, run) if one.question.tool]
    if not asked:
        raise Failed(f"run {run} asks a question, not an approval; answer with `runs reply`.")
    answers: dict[str, Any] = {}
    for one in asked:
        _show(one)
        if reject:
            said = {"message": message} if message else {}
            answers[one.question.id] = {"decision": "reject", **said}
        elif yes or click.confirm("Approve?", err=True):
            answers[one.question.id] = {"decision": "approve", **one.proof()}
    if not answers:
        raise Failed("nothing was decided.")
    print_answer(_within(flags, lambda admin: admin.answer(run, answers)), as_json)


@runs.command()
@click.argument("run")
@click.argument("message")
@connectable
@json_option
@click.pass_obj
def reply(flags: dict[str, str | None], run: str, message: str, as_json: bool) -> None:
    """Answer the question of a run with MESSAGE.

    MESSAGE is text, or JSON if the question has a schema. Then a server that uses the journal
    continues the run, or the next one that starts. If the run is working and asks nothing, its
    agent reads MESSAGE before its next step.
    """
    told = _within(flags, lambda admin: admin.tell(run, message))
    if told is not None:
        print_answer(told, as_json)
        return
    asked = [one.question for one in _asked(flags, run)]
    if any(one.tool for one in asked):
        raise Failed(f"run {run} waits for an approval; decide it with `runs approve {run}`.")
    if len(asked) > 1:
        named = ", ".join(one.id for one in asked)
        raise Failed(
            f"run {run} asks {len(asked)} things ({named}). Nothing was stored. Answer them with "
            f"`deep-agent-mcp run --resume {run}`."
        )
    given: Any = message
    if asked[0].schema.get("type", "string") != "string":
        try:
            given = json.loads(message)
        except ValueError as error:
            schema = json.dumps(asked[0].schema)
            raise Refused(
                f"the answer has to be JSON that fits {schema}: {error}. Nothing was stored."
            ) from None
    print_answer(_within(flags, lambda admin: admin.answer(run, {asked[0].id: given})), as_json)


def _asked(flags: dict[str, str | None], run: str) -> Sequence[WholeQuestion]:
    """Return the open questions of a run."""

    async def asked(admin: RunAdmin | RemoteRuns) -> Sequence[WholeQuestion]:
        from ..terminal.remote import RemoteRuns

        if isinstance(admin, RemoteRuns):
            return await admin.questions(run)
        return [_whole(one) for one in await admin.questions(run)]

    return _within(flags, asked)


def _whole(question: Interrupt) -> WholeQuestion:
    from ..terminal.questions import WholeQuestion
    from ..terminal.states import Question

    payload, is_approval = question.payload, question.kind == "approval"
    return WholeQuestion(
        Question(
            question.id,
            question.message,
            " > ".join(question.path[::2]),
            str(payload.get("tool") or "") if is_approval else "",
            json.dumps(payload.get("args"), ensure_ascii=False),
            schema=question.answer_schema,
        )
    )


def _show(question: WholeQuestion) -> None:
    """Print a question in full."""
    from rich.console import Console

    from ..terminal.questions import shown

    Console(stderr=True, highlight=False).print(shown(question), soft_wrap=True, end="")


def _within(
    flags: dict[str, str | None], work: Callable[[RunAdmin | RemoteRuns], Awaitable[T]]
) -> T:
    """Run work on the server of `--connect`, or on the journal of the flags and settings."""
    if is_elsewhere(flags):
        from ..terminal.remote import RemoteRuns

        return at_server(flags, RemoteRuns.open, work)

    async def with_admin(settings: Settings) -> T:
        from ..operations.run_admin import RunAdmin

        async with RunAdmin.open(settings) as admin:
            return await work(admin)

    return with_settings(flags, with_admin)
