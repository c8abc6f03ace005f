"""`deep-agent-mcp chat`: a conversation with an agent at the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .run import again, approval, only_local, refusing

__all__ = ["chat"]


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
    "--max-cost", type=click.FloatRange(0, min_open=True), help="US dollars a message at most."
)
@click.option(
    "--approve",
    multiple=True,
    metavar="ask|never|GLOB",
    help="Who decides what needs approval: you (ask), or nobody (never: reject it). A GLOB names "
    "tools that need it. Repeatable.  [ask]",
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
    """Talk to an agent: each message is a goal, worked on in one thread.

    /files, /todos, /cost and /rewind show and undo what it did; /help lists all commands. Ctrl-C
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
