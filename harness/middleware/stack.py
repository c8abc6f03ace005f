"""Stack changes: sets options of built-in middleware, and places additional middleware."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .._internal.records import record
from ..definitions import no_such
from ..errors import AgentBuildError, HarnessError
from ..loop.hooks.middleware import AgentMiddleware

__all__ = ["Placed", "placed", "with_options"]


@record
class Placed:
    """A middleware with its place in the stack of `create_deep_agent`.

    Attributes:
        middleware: The middleware.
        before: Name of the middleware that it surrounds.
        after: Name of the middleware that surrounds it.

    Raises:
        AgentBuildError: Both or none of them are given.
    """

    middleware: AgentMiddleware
    before: str | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        if (self.before is None) == (self.after is None):
            raise AgentBuildError(
                f"the place of {self.middleware.name} is one name, before= or after= which it goes"
            )


def with_options(
    stack: Sequence[AgentMiddleware],
    options: Mapping[str, Mapping[str, Any] | None],
    optional: Collection[str],
    *,
    all_known: bool,
) -> list[AgentMiddleware]:
    """Return a stack in which some middleware is built again, with other options.

    Args:
        stack: Outermost first.
        options: Keyword arguments by name of the middleware, which override its own; None leaves
            it out.
        optional: Middleware that may be left out.
        all_known: Whether options for missing middleware are an error; if not, they are ignored.

    Raises:
        AgentBuildError: A middleware does not take an option, or must not be left out.
    """
    names = [one.name for one in stack]
    for name, wanted in options.items():
        if all_known and wanted is not None and name not in names:
            raise AgentBuildError(no_such("middleware", name, names), about=("middleware", name))
    changed: list[AgentMiddleware] = []
    for one in stack:
        if one.name not in options:
            changed.append(one)
            continue
        wanted = options[one.name]
        if wanted is not None:
            changed.append(_again(one, wanted))
        elif one.name not in optional:
            raise AgentBuildError(
                f"{one.name} cannot be left out; what can: {', '.join(sorted(optional))}",
                about=("middleware", one.name),
            )
    return changed


def placed(
    stack: Sequence[AgentMiddleware], further: Sequence[Placed], *, all_known: bool
) -> list[AgentMiddleware]:
    """Return a stack with additional middleware, each at its place.

    Args:
        stack: Outermost first.
        further: The additional middleware; if several have the same place, in this order.
        all_known: Whether a missing place is an error; if not, its middleware goes to the end,
            innermost.

    Raises:
        AgentBuildError: There is no such place.
    """
    result = list(stack)
    behind: dict[str, int] = {}  # how many were placed after each anchor
    for one in further:
        anchor = one.before or one.after or ""
        names = [known.name for known in result]
        if anchor not in names:
            if all_known:
                why = no_such("middleware", anchor, names)
                raise AgentBuildError(
                    f"{one.middleware.name} cannot be placed: {why}",
                    about=("middleware", one.middleware.name),
                )
            result.append(one.middleware)
            continue
        index = names.index(anchor)
        if one.before is None:
            behind[anchor] = behind.get(anchor, 0) + 1
            index += behind[anchor]
        result.insert(index, one.middleware)
    return result


def _again(one: AgentMiddleware, options: Mapping[str, Any]) -> AgentMiddleware:
    """Build a middleware again, with these options overriding its own."""
    arguments, given = one.made_with
    accepted = [
        name
        for name, parameter in inspect.signature(type(one).__init__).parameters.items()
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]
    unknown = [name for name in options if name not in accepted]
    if unknown:
        raise AgentBuildError(no_such(f"option of {one.name}", unknown[0], accepted))
    try:
        named = inspect.signature(type(one).__init__).bind(one, *arguments, **given).arguments
        own = {name: value for name, value in named.items() if name != "self"}
        return type(one)(**{**own, **options})
    except (HarnessError, TypeError, ValueError) as error:
        raise AgentBuildError(
            f"{one.name} cannot be made with {dict(options)!r}: {error}",
            about=("middleware", one.name),
        ) from error
