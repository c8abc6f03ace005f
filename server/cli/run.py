"""`deep-agent-mcp run` and `chat`: give an agent a goal, or talk to it, in the terminal."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from .main import serve
from .shared import Failed, Interrupted, Refused

__all__ = ["chat", "run"]

SHARED = (
    "agent_file",
    "trust_root",
    "root",
    "skills",
    "agents",
    "memory",
    "model",
    "profiles",
    "state_dir",
    "journal",
    "journal_url_file",
    "store",
    "store_url_file",
    "journal_key_file",
    "beyond_allowed_tools",
    "policy",
    "protect",
    "protect_paths",
    "execute",
    "allow_network",
    "background_subagents",
    "telemetry",
    "telemetry_content",
    "model_patience",
    "config",
    "log_level",
)
"""Options of `serve` with the same meaning here."""


_model = click.Option(
    ["--model"], metavar="NAME", help="Such as anthropic:<id>; `models` lists the vendors."
)


def _with_settings(command: click.Command) -> click.Command:
    """Add the options of `serve` in `SHARED` to a command."""
    command.params += [one for one in serve.params if one.name in SHARED and one.name != "model"]
    command.params.append(_model)
    return command


@_with_settings
@click.command()
@click.argument("goal", required=False)
@click.option("--resume", metavar="RUN", help="Continue a run that paused, failed or asks.")
@click.option("--thread", metavar="THREAD", help="Continue this thread.  [a new one]")
@click.option("--subagent", metavar="NAME", help="Give the goal to this subagent.")
@click.option(
    "--attach",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send a file with the goal. Repeatable.",
)
@click.option("--output-schema", metavar="FILE", help="The answer is JSON that fits this schema.")
@click.option(
    "--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD", help="Dollars at most."
)
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Tokens at most, in all.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Seconds at most.",
)
@click.option(
    "--approve",
    multiple=True,
    metavar="ask|never|stop|GLOB",
    help="Who decides what needs approval: you (ask), or nobody (never: it does not run; stop: the "
    "run waits, exit code 3). A GLOB names tools that need it. Repeatable.  [ask; without a "
    "terminal stop]",
)
@click.option("--json", "as_json", is_flag=True, help="Print events and the result as JSON lines.")
@click.option("--quiet", is_flag=True, help="Print the answer only.")
@click.option("--connect", metavar="URL", help="Use this server, such as http://host:8000/mcp.")
@click.option("--token", metavar="TOKEN", help="For --connect.  [DEEP_AGENT_TOKEN]")
@click.pass_context
def run(
    ctx: click.Context,
    goal: str | None,
    resume: str | None,
    thread: str | None,
    subagent: str | None,
    attach: tuple[Path, ...],
    output_schema: str | None,
    max_cost: float | None,
    max_tokens: int | None,
    max_seconds: float | None,
    approve: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    connect: str | None,
    token: str | None,
    config: str | None,
    **flags: object,
) -> None:
    """Give an agent GOAL, watch it work, and print its answer.

    With `-`, the goal is read from standard input. The answer goes to standard output and
    everything else to standard error. Ctrl-C pauses the run.

    Exit codes: 0 done, 1 failed, 2 nothing was started, 3 needs approval, 4 limit reached, 130
    interrupted, 141 the reader of the output has ended.
    """
    if (goal is None) == (resume is None):
        raise click.UsageError("Give either a GOAL or --resume RUN.")
    from ..terminal.states import Task
    from ..terminal.working import Choices, run_goal

    if resume is not None:
        _require_none_of_a_new_run(ctx)
    mode, globs = approval(approve)
    model = "" if connect is None else only_local(flags, globs)
    limits = {"cost": max_cost, "tokens": max_tokens, "seconds": max_seconds}
    task = (
        None
        if goal is None
        else Task(
            goal=_goal(goal),
            thread_id=thread or "",
            agent=subagent or "",
            model=model,
            output_schema=_schema(output_schema),
            limits={name: value for name, value in limits.items() if value is not None},
        )
    )
    choices = Choices(
        {**flags, "approve": globs}, config, connect, token, mode, as_json, quiet, again(ctx)
    )
    sys.exit(refusing(lambda: run_goal(choices, task, resume, attach)))


def _require_none_of_a_new_run(ctx: click.Context) -> None:
    """Refuse options that are only allowed at the start of a run."""
    names = ["thread", "subagent", "attach", "output_schema", "max_cost", "max_tokens"]
    names += ["max_seconds", *(["model"] if ctx.params["connect"] else ())]
    given = [f"--{one.replace('_', '-')}" for one in names if ctx.params[one] not in (None, ())]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} cannot be used with --resume, because a run keeps what it was "
            'started with. Start another run on its thread instead: run --thread THREAD "…".'
        )


def approval(given: tuple[str, ...]) -> Any:
    """Return the mode and the globs of `--approve`."""
    from ..settings.settings import SettingsError
    from ..terminal.working import split_approve

    try:
        return split_approve(given)
    except SettingsError as error:
        raise Refused(f"{error}. Nothing was started.") from None


def refusing(work: Any) -> int:
    """Call a function; convert expected errors to a message and an exit code."""
    from ...harness.errors import HarnessError
    from ..settings.settings import SettingsError
    from ..settings.state_dir import StateDirError
    from ..terminal.states import CalledOff, LinkError, NotStarted

    try:
        return work()
    except (SettingsError, StateDirError, HarnessError) as error:
        raise Refused(f"{str(error).rstrip('.')}. Nothing was started.") from None
    except CalledOff as error:
        raise Interrupted(str(error)) from None
    except NotStarted as error:
        raise Refused(str(error)) from None
    except LinkError as error:
        raise Failed(str(error)) from None


def again(ctx: click.Context) -> str:
    """Return the options for a command line that continues this one, each after a space."""
    words: list[str] = []
    for one in ctx.command.params:
        value = ctx.params.get(one.name or "")
        kept = one.name in (*SHARED, "approve", "connect")
        if not kept or value in (None, ()) or not isinstance(one, click.Option):
            continue
        values: tuple[object, ...] = value if one.multiple else (value,)
        words += (
            [one.opts[0]] if one.is_flag else [w for v in values for w in (one.opts[0], str(v))]
        )
    return "".join(f" {shlex.quote(word)}" for word in words)


def _goal(given: str) -> str:
    text = sys.stdin.read() if given == "-" else given
    if not text.strip():
        raise click.UsageError("The goal is empty.")
    return text


def _schema(file: str | None) -> Any:
    if file is None:
        return None
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError) as error:
        why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else f": {error}"
        raise Refused(f"--output-schema {file} {why}. Nothing was started.") from None


def only_local(flags: dict[str, object], globs: tuple[str, ...]) -> str:
    """Refuse options that cannot be used with `--connect`; return the requested model."""
    model = str(flags.pop("model", None) or "")
    given = sorted(name for name, value in flags.items() if value not in (None, ()))
    if globs:
        given.append("approve GLOB")
    if given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise Refused(
            f"{named}: the server at --connect decides this. Nothing was started. Leave it out, or "
            "set it where the server is started."
        )
    return model


@_with_settings
@click.command()
@click.option("--thread", metavar="THREAD", help="Continue this thread.  [a new one]")
@click.option("--subagent", metavar="NAME", help="Talk to this subagent.")
@click.option(
    "--attach",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send a file with the first message. Repeatable.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(0, min_open=True),
    metavar="USD",
    help="Dollars at most, for each message.",
)
@click.option(
    "--approve",
    multiple=True,
    metavar="ask|never|GLOB",
    help="Who decides what needs approval: you (ask), or nobody (never: it does not run). A GLOB "
    "names tools that need it. Repeatable.  [ask]",
)
@click.option("--connect", metavar="URL", help="Talk to an agent of this server.")
@click.option("--token", metavar="TOKEN", help="For --connect.  [DEEP_AGENT_TOKEN]")
@click.pass_context
def chat(
    ctx: click.Context,
    thread: str | None,
    subagent: str | None,
    attach: tuple[Path, ...],
    max_cost: float | None,
    approve: tuple[str, ...],
    connect: str | None,
    token: str | None,
    config: str | None,
    **flags: object,
) -> None:
    """Talk to an agent, message by message, in one thread.

    /files, /todos and /cost show its work, and /rewind undoes it; /help lists all commands. Ctrl-C
    pauses the agent, Ctrl-D ends. The conversation is kept: --thread continues it.
    """
    from ..terminal.states import Task
    from ..terminal.working import Choices, converse

    mode, globs = approval(approve)
    model = "" if connect is None else only_local(flags, globs)
    limits = {} if max_cost is None else {"cost": max_cost}
    task = Task("", thread or "", subagent or "", model, None, limits)
    choices = Choices({**flags, "approve": globs}, config, connect, token, mode, again=again(ctx))
    sys.exit(refusing(lambda: converse(choices, task, attach)))
