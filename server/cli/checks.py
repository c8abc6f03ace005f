"""The commands `models` and `policy …`, which check models and policies.

`models` shows which vendors are ready to use, and the answer and cost of a test call. `policy`
checks a policy file, and explains its decision about a call.
"""

from __future__ import annotations

import json
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import click

from .shared import Failed, Refused, echo

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ...harness.messages.message import AIMessage
    from ...harness.models.base import ChatModel
    from ...harness.policy import Policy, Rule
    from ...harness.policy.rules import Patterns
    from ...harness.tools.tool import Tool

__all__ = ["models", "policy"]


_MOST_TOKENS = 2_000
"""Maximum tokens of the answer to a test call, including thinking."""

_SECONDS = 120.0

_BY_SDK = "its SDK looks for it"
"""Nobody has looked yet: the SDK also finds credentials in files and on the network."""


@click.command()
@click.option(
    "--check", metavar="NAME", help="Send this model a tiny request; this costs a few tokens."
)
def models(check: str | None) -> None:
    """List model vendors, and which of them are ready to use.

    A vendor is ready when its extra is installed and its key is set.
    """
    import anyio

    if check is None:
        _list()
    else:
        anyio.run(_check, check)


_CLOUDS = (
    ("anthropic-bedrock", "bedrock", "boto3", "Claude on Amazon Bedrock"),
    ("anthropic-vertex", "google", "google.auth", "Claude on Vertex AI"),
)


def _list() -> None:
    from ...harness.models.vendors import VENDORS
    from ...harness.models.vendors.model import has_module, is_installed
    from ...harness.plugins import entry_points

    click.echo(_row("MODEL", "INSTALLED", "KEY", ""))
    click.echo(_row("anthropic:", "yes", _key(("ANTHROPIC_API_KEY",), True), "Claude"))
    for name, extra, module, title in _CLOUDS:
        there = "yes" if has_module(module) else f"no: extra {extra}"
        click.echo(_row(f"{name}:", there, _BY_SDK, title))
    for vendor in VENDORS.values():
        installed = "yes" if is_installed(vendor) else f"no: extra {vendor.extra}"
        by_sdk = vendor.api in ("bedrock", "google-cloud")
        key = _key(vendor.keys, vendor.key_required, _BY_SDK if by_sdk else "none needed")
        click.echo(_row(f"{vendor.name}:", installed, key, vendor.title))
    for name, found in entry_points("models").items():
        click.echo(_row(f"{name}:", "yes", "", f"plugin of {found[0].source}"))
    click.echo("\nExtras: pip install 'deep-agent-mcp[NAME]'. `--check NAME` asks a model.")


def _row(name: str, installed: str, key: str, title: str) -> str:
    return f"{name:<18} {installed:<18} {key:<32} {title}".rstrip()


def _key(variables: tuple[str, ...], required: bool, otherwise: str = "") -> str:
    """Return the name of the variable that is set, never its value."""
    found = next((name for name in variables if os.environ.get(name)), None)
    if found is not None:
        return f"{found} is set"
    return f"set {variables[0]}" if required else otherwise


async def _check(name: str) -> None:
    import anyio

    from ...harness.errors import HarnessError
    from ...harness.limits.prices import price_of
    from ...harness.models.registry import init_chat_model

    try:
        model = init_chat_model(name)
        window, price = model.context_window, price_of(model.name)
        click.echo(f"{model.name}")
        click.echo(f"  context window: {f'{window:,} tokens' if window else 'not known'}")
        listed = (
            f"${price.input:g} in, ${price.output:g} out, per million tokens" if price else None
        )
        click.echo(f"  list price: {listed or 'not known'}")
        with anyio.fail_after(_SECONDS):
            answer = await _ask(model)
    except HarnessError as error:
        raise Failed(str(error)) from None
    except TimeoutError:
        raise Failed(
            f"{name} gave no answer within {_SECONDS:g} s. Nothing was stored. Check its address."
        ) from None
    used = answer.usage
    echo(f"  answer of {answer.model}: {' '.join(answer.text.split())[:200] or '(no text)'}")
    if used is not None:
        cost = f", ${price.cost(used):.6f}" if price else ""
        click.echo(f"  this call: {used.total:,} tokens{cost}")


async def _ask(model: ChatModel) -> AIMessage:
    """Send a request with minimal cost and return the answer.

    Raises:
        ModelError: The call failed.
    """
    from ...harness.messages.message import AIMessage, HumanMessage
    from ...harness.models.base import ChatRequest

    request = ChatRequest([HumanMessage("Say: it works.")], settings={"max_tokens": _MOST_TOKENS})
    try:
        async with aclosing(model.stream(request)) as stream:
            answers = [part async for part in stream if isinstance(part, AIMessage)]
        return answers[-1]
    finally:
        await model.aclose()


_CONDITIONS = ("tool", "path", "command", "server", "agent", "principal")
_MARKS = ("read_only", "destructive", "open_world")
_EXIT = {"allow": 0, "ask": 3, "deny": 4}


@click.group()
def policy() -> None:
    """Check policy files, and explain their decisions."""


@policy.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
def check(files: tuple[str, ...]) -> None:
    """Print the parsed rules, or the errors in them."""
    rules = _load(files)
    for rule in rules.rules:
        click.echo(_rule_text(rule))
    defaults = [f"{action} for {name} tools" for name, action in rules.defaults.items()]
    click.echo(f"otherwise: {', '.join([*defaults, f'{rules.default} for all else'])}")


@policy.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--tool", "name", required=True, metavar="NAME", help="The tool that is called.")
@click.option("--args", "arguments", default="{}", metavar="JSON", help="Its arguments.  [{}]")
@click.option(
    "--agent",
    metavar="NAMES",
    default="main",
    help="The calling agent, such as main/reader.  [main]",
)
@click.option("--principal", metavar="NAME", default="", help="The user the agent works for.")
@click.option("--server", metavar="NAME", help="The MCP server the tool comes from.")
@click.option("--mark", "marks", multiple=True, type=click.Choice(_MARKS), help="Repeatable.")
def explain(
    files: tuple[str, ...],
    name: str,
    arguments: str,
    agent: str,
    principal: str,
    server: str | None,
    marks: tuple[str, ...],
) -> None:
    """Print the verdict on a call and the rule that decides.

    Built-in tools are known by their names. For other tools, pass --mark and --server; without
    them, rules about marks and servers are applied strictly. The exit code is 0 for allow, 3 for
    ask, 4 for deny.
    """
    rules = _load(files)
    from ...harness.policy.access_request import AccessRequest, strictest

    names = tuple(part for part in agent.split("/") if part)
    call = AccessRequest(name, _arguments(arguments), _tool(name, server, marks), names, principal)
    decided = rules.decide(call)
    commands = [] if call.line is None else [*dict.fromkeys(call.line.commands)]
    for number, one in enumerate(decided):
        if len(decided) > 1:
            words = " ".join(word or "…" for word in commands[number])
            click.echo(f"{one.verdict.action} ({words}): {one.verdict.reason}")
            if one.rule is not None:
                click.echo(f"  {_rule_text(one.rule)}")
    verdict = decided[0].verdict
    if len(decided) > 1:
        verdict = strictest(one.verdict for one in decided)
    click.echo(f"{verdict.action}: {verdict.reason}" if verdict.reason else verdict.action)
    if len(decided) == 1 and decided[0].rule is not None:
        click.echo(f"  {_rule_text(decided[0].rule)}")
    raise SystemExit(_EXIT[verdict.action])


def _load(files: tuple[str, ...]) -> Policy:
    from ...harness.policy import Policy, PolicyError

    try:
        return Policy.from_toml(*files)
    except PolicyError as error:
        raise Refused(str(error)) from None


def _arguments(text: str) -> dict[str, JsonValue]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise Refused(f"--args is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refused(f'--args must be a JSON object such as {{"path": "/a"}}; got {text}')
    return cast("dict[str, JsonValue]", given)


def _tool(name: str, server: str | None, marks: tuple[str, ...]) -> Tool | None:
    """Return the built-in tool with this name, or a tool of a server; marks replace its own."""
    from dataclasses import replace

    from ...harness.deep_agent import create_deep_agent
    from ...harness.mcp_servers.tools import MCPTool
    from ...harness.models.scripted import ScriptedModel
    from ...harness.tools.tool import Tool

    async def nothing(_args: object, _runtime: object) -> None: ...

    said = {mark: mark in marks for mark in _MARKS}
    if server is not None and not marks:  # the defaults of MCP for tools without annotations
        said |= {"destructive": True, "open_world": True}
    if server is not None:
        return MCPTool(name, "", {}, nothing, server=server, **said)  # type: ignore[arg-type]
    known = create_deep_agent(ScriptedModel([])).definition.tools.get(name)
    if not marks:
        return known
    if known is not None:
        return replace(known, **said)
    return Tool.from_schema(name, "", {"type": "object"}, lambda _: "", **said)  # type: ignore[arg-type]


def _rule_text(rule: Rule) -> str:
    """Return a rule in one line, such as `rule 1 of p.toml: deny tool "*", path "/secret/**"`."""
    parts = [f"tool {_quoted(rule.tool)}"]
    for name in _CONDITIONS[1:]:
        value = getattr(rule, name)
        if value is not None:
            parts.append(f"{name} {_quoted(value)}")
    for name, pattern in rule.args.items():
        shown = f'"{pattern}"' if isinstance(pattern, str) else f"regex /{pattern.pattern}/"
        parts.append(f"argument {name} {shown}")
    marks = {name: getattr(rule, name) for name in _MARKS}
    parts += [
        f"{'' if value else 'not '}{name}" for name, value in marks.items() if value is not None
    ]
    reason = f" ({rule.reason})" if rule.reason else ""
    return f"{rule.source}: {rule.action} {', '.join(parts)}{reason}"


def _quoted(patterns: Patterns) -> str:
    several = (patterns,) if isinstance(patterns, str) else patterns
    return " or ".join(f'"{one}"' for one in several)
