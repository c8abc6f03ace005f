"""`models`: which models can be used here, and what a call of one says and costs."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...harness.messages.message import AIMessage
    from ...harness.models.base import ChatModel

__all__ = ["models"]

_MOST_TOKENS = 2_000
"""Bound of the answer to a check; models that think need some before they say anything."""

_SECONDS = 120.0


@click.command()
@click.option("--check", metavar="NAME", help="Ask this model something tiny; it costs a little.")
def models(check: str | None) -> None:
    """List the vendors of models: whether their extra is installed and their key is set."""
    import anyio

    if check is None:
        _list()
    else:
        anyio.run(_check, check)


def _list() -> None:
    from ...harness.models.vendors import VENDORS
    from ...harness.models.vendors.model import is_installed
    from ...harness.plugins import entry_points

    click.echo(_row("MODEL", "INSTALLED", "KEY", ""))
    click.echo(_row("anthropic:", "yes", _key(("ANTHROPIC_API_KEY",), True), "Claude"))
    for vendor in VENDORS.values():
        installed = "yes" if is_installed(vendor) else f"no: extra {vendor.extra}"
        key = _key(vendor.keys, vendor.key_required)
        click.echo(_row(f"{vendor.name}:", installed, key, vendor.title))
    for name, found in entry_points("models").items():
        click.echo(_row(f"{name}:", "yes", "", f"plugin of {found[0].source}"))
    click.echo("\nExtras: pip install 'deep-agent-mcp[NAME]'. `--check NAME` asks a model.")


def _row(name: str, installed: str, key: str, title: str) -> str:
    return f"{name:<18} {installed:<18} {key:<32} {title}".rstrip()


def _key(variables: tuple[str, ...], required: bool) -> str:
    """Return the variable that is set; never its value."""
    found = next((name for name in variables if os.environ.get(name)), None)
    if found is not None:
        return f"{found} is set"
    return f"set {variables[0]}" if required else "none needed, or found by its SDK"


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
        listed = f"${price.input:g} in, ${price.output:g} out, a million tokens" if price else None
        click.echo(f"  list price: {listed or 'not known'}")
        with anyio.fail_after(_SECONDS):
            answer = await _ask(model)
    except HarnessError as error:
        raise click.ClickException(str(error)) from error
    except TimeoutError as error:
        raise click.ClickException(
            f"{name} gave no answer within {_SECONDS:g} s. Nothing was stored. Check its address."
        ) from error
    used = answer.usage
    click.echo(f"  answer of {answer.model}: {' '.join(answer.text.split())[:200] or '(no text)'}")
    if used is not None:
        cost = f", ${price.cost(used):.6f}" if price else ""
        click.echo(f"  this call: {used.total:,} tokens{cost}")


async def _ask(model: ChatModel) -> AIMessage:
    """Return the answer to a question that costs next to nothing.

    Raises:
        ModelError: There was none.
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
