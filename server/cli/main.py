"""Entry point of the command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys
from collections import UserDict
from importlib import import_module
from typing import Any

import click

from .shared import Commands, Refused, use_utf8, while_somebody_reads

__all__ = ["cli", "main", "serve"]


class _LazyCommands(UserDict[str, Any]):
    """Commands by name. A value may be a module's name; it is imported at its first use."""

    def __getitem__(self, name: str) -> click.Command:
        found = super().__getitem__(name)
        if isinstance(found, str):
            found = self[name] = getattr(import_module(found, __package__), name)
        return found


_COMMANDS = _LazyCommands(
    agent=".agent",
    chat=".run",
    completion=".completion",
    doctor=".install",
    install=".install",
    journal=".state",
    mcp=".agent",
    middleware=".middleware",
    models=".checks",
    policy=".checks",
    replicas=".state",
    run=".run",
    runs=".runs",
    schedules=".schedules",
    skills=".skills",
    threads=".threads",
    token=".state",
    webhooks=".schedules",
)


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from ..version import NAME, version

        click.echo(f"{NAME} {version()}")
        ctx.exit()


@click.group(
    cls=Commands,
    commands=_COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Give any MCP client a durable deep agent: todos, files, skills, subagents, history.

    Without a command, it serves MCP on standard input and output. At a terminal, it shows this
    help.
    """
    if ctx.invoked_subcommand is not None:
        return
    if sys.stdin is None or sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        click.echo(ctx.get_help())
    else:
        from .serving import start

        start({}, None)


@cli.command()
@click.option("--transport", metavar="stdio|http|sse", help="How clients connect.  [stdio]")
@click.option("--host", metavar="ADDRESS", help="Address to bind for http and sse.  [127.0.0.1]")
@click.option("--port", metavar="PORT", help="Port to bind; 0 takes any free one.  [8000]")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name clients use besides localhost. Repeatable; needed to bind other addresses.",
)
@click.option(
    "--auth",
    multiple=True,
    metavar="token|oauth|none",
    help="How HTTP clients authenticate; see `token create`. Repeatable.",
)
@click.option("--public-url", metavar="URL", help="Where clients reach this server, for OAuth.")
@click.option("--oauth-issuer", metavar="URL", help="URL of the authorization server to trust.")
@click.option(
    "--oauth-jwks-url", metavar="URL", help="URL of its keys, if not the one it publishes."
)
@click.option("--tls-cert", metavar="FILE", help="Certificate for HTTPS.")
@click.option("--tls-key", metavar="FILE", help="Private key of that certificate.")
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Trust forwarded headers from this address or network. Repeatable.",
)
@click.option("--agent", "agent_file", metavar="FILE", help="Agent file; see `agent check`.")
@click.option(
    "--trust-root",
    is_flag=True,
    default=None,
    help="Use a deep-agent.toml in --root as the agent file.",
)
@click.option("--root", metavar="DIR", help="Directory that the file tools work in.")
@click.option("--skills", multiple=True, metavar="DIR", help="Directory of skills. Repeatable.")
@click.option("--agents", metavar="DIR", help="Directory of subagent files.")
@click.option("--memory", multiple=True, metavar="FILE", help="Text for every prompt. Repeatable.")
@click.option(
    "--model",
    metavar="NAME",
    help="Model of delegated runs, such as anthropic:<id> or openai:<id>; sampling for the "
    "client's own.",
)
@click.option(
    "--task-model",
    "task_models",
    multiple=True,
    metavar="GLOB",
    help="Models that callers of `task` may choose, such as 'anthropic:*'. Repeatable.  [none]",
)
@click.option("--profiles", multiple=True, metavar="DIR", help="Model profiles. Repeatable.")
@click.option("--state-dir", metavar="DIR", help="Where threads and history are kept.")
@click.option(
    "--journal", metavar="URL", help="Where to keep threads: postgresql://…, redis://…, sqlite:…."
)
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option(
    "--replicas",
    is_flag=True,
    default=None,
    help="Let several servers share the journal, which must be in Postgres.",
)
@click.option(
    "--shared-root",
    is_flag=True,
    default=None,
    help="All replicas see the same files in --root.",
)
@click.option(
    "--store",
    metavar="URL",
    help="Where to keep long-term memory: postgresql://…, redis://…, sqlite:….",
)
@click.option("--store-url-file", metavar="FILE", help="Read the store's URL from FILE.")
@click.option(
    "--journal-key-file",
    metavar="FILE",
    help="Encrypt the journal with the first key in FILE; `threads new-key` makes one.",
)
@click.option(
    "--approve",
    multiple=True,
    metavar="GLOB",
    help="Tools whose calls need a person's approval, such as 'write_*'. Repeatable.",
)
@click.option(
    "--beyond-allowed-tools",
    metavar="allow|ask|deny",
    help="What to do when an agent calls a tool that its skill's `allowed-tools` omits.  [allow]",
)
@click.option(
    "--policy",
    multiple=True,
    metavar="FILE",
    help="Rules in front of every tool call; see `policy check`. Repeatable.",
)
@click.option(
    "--protect",
    metavar="ask|deny|off",
    help="What to do when an agent writes a file that programs read at start-up.  [ask]",
)
@click.option(
    "--protect-path",
    "protect_paths",
    multiple=True,
    metavar="GLOB",
    help="More such files, such as '.github/**'; '!GLOB' excludes files. Repeatable.",
)
@click.option(
    "--execute",
    metavar="off|bubblewrap|docker|host",
    help="Let agents and clients run commands, in a sandbox or with all your rights.  [off]",
)
@click.option(
    "--allow-network",
    is_flag=True,
    default=None,
    help="Let sandboxed commands reach the network, including services on this machine.",
)
@click.option(
    "--background-subagents",
    is_flag=True,
    default=None,
    help="Let delegated runs start subagents that work in the background.",
)
@click.option(
    "--telemetry",
    metavar="off|otlp|console",
    help="Send OpenTelemetry spans and metrics to a collector, or print them to stderr.  [off]",
)
@click.option(
    "--telemetry-content",
    is_flag=True,
    default=None,
    help="Include inputs and outputs of models and tools in the spans.",
)
@click.option(
    "--toolsets",
    multiple=True,
    metavar="NAMES",
    help="Offer only these: todos, files, skills, commands, delegation, history, compact.  [all]",
)
@click.option("--exclude-tools", multiple=True, metavar="NAMES", help="Don't offer these tools.")
@click.option(
    "--read-only", is_flag=True, default=None, help="Offer only tools that change nothing."
)
@click.option("--experimental", multiple=True, metavar="NAMES", help="Offer drafts of MCP: agents.")
@click.option(
    "--schedules", is_flag=True, default=None, help="Fire schedules; see the command `schedules`."
)
@click.option(
    "--schedule-tool",
    is_flag=True,
    default=None,
    help="Let the agent ask for schedules; a person approves each.",
)
@click.option(
    "--webhook",
    "webhooks",
    multiple=True,
    metavar="URL",
    help="Tell this URL when a run pauses or ends. Repeatable.",
)
@click.option(
    "--webhook-host",
    "webhook_hosts",
    multiple=True,
    metavar="NAME",
    help="A host that webhooks may go to. Repeatable.",
)
@click.option(
    "--webhook-secret-file",
    metavar="FILE",
    help="Sign webhooks with the secrets in FILE; `webhooks new-secret` makes one.",
)
@click.option(
    "--thread-per",
    metavar="conversation|call",
    help="What shares a thread if its calls name none: a conversation, or nothing.  [conversation]",
)
@click.option(
    "--wait-budget", metavar="SECONDS", help="How long a call waits for its run to end.  [45]"
)
@click.option(
    "--model-patience",
    metavar="SECONDS",
    help="How long to retry a model call while the model is down or overloaded.  [600]",
)
@click.option(
    "--journal-patience",
    metavar="SECONDS",
    help="How long runs wait while the journal's database is down.  [300]",
)
@click.option(
    "--drain-seconds",
    metavar="SECONDS",
    help="How long runs may take to finish their step when an HTTP server is stopped.  [30]",
)
@click.option(
    "--engine",
    metavar="local|dbos",
    help="What decides when a run begins: this server, or a queue shared by replicas.  [local]",
)
@click.option(
    "--workers",
    metavar="N",
    help="How many runs this server works on at once.  [no limit; dbos: 16]",
)
@click.option(
    "--max-runs",
    metavar="N",
    help="How many runs of one user may work at once; on each replica, except with dbos.  [32]",
)
@click.option("--queue-size", metavar="N", help="How many runs of one user may be queued.  [1000]")
@click.option(
    "--priority",
    "priorities",
    multiple=True,
    metavar="PRINCIPAL=N",
    help="Whose runs go first: 1 is first, 5 is usual, 9 is last. Repeatable.",
)
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.  [warning]")
@click.option("--reload", is_flag=True, help="Reload MODULE:ATTRIBUTE when its files change.")
@click.argument("application", required=False, metavar="[MODULE:ATTRIBUTE]")
def serve(application: str | None, config: str | None, reload: bool, **flags: object) -> None:
    """Serve MCP to one client on stdio, or to many over HTTP.

    MODULE:ATTRIBUTE is your own agent in Python, or a function that creates one. It replaces the
    built-in agent.

    Each option can also be set as DEEP_AGENT_<OPTION> or in the TOML file. Command-line options
    take precedence.
    """
    if reload and application is None:
        raise Refused("--reload follows the files of MODULE:ATTRIBUTE, so name one")
    from .serving import start

    start(flags, config, application, reload=reload)


@cli.command()
@click.option("--live", is_flag=True, help="Use a real model; requires ANTHROPIC_API_KEY.")
def demo(live: bool) -> None:
    """Show what the server does, end to end, with a scripted model."""
    from ..demo import main as run_demo

    sys.exit(run_demo(live))


for _one in serve.params:
    if isinstance(_one, click.Option) and _one.metavar in ("DIR", "FILE"):
        _one.type = click.Path()  # for completion in shells; paths are not checked


def main() -> None:
    """Run the console script."""
    use_utf8()
    with while_somebody_reads():  # includes error messages
        cli(prog_name="deep-agent-mcp")


if __name__ == "__main__":
    main()
