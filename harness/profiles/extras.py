"""A profile's changes to a stack of middleware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import middleware as shipped
from .._internal.patterns import fits
from ..errors import AgentBuildError, HarnessError
from ..loop.hooks.middleware import AgentMiddleware
from .profile import Profile

__all__ = ["about_tools", "extra_middleware", "fitted"]

_TEACHERS = ("SkillsMiddleware", "SubAgentMiddleware", "TodoListMiddleware")
"""Middleware whose prompt section is about its tools only, and goes with them."""


def about_tools(profile: Profile) -> list[AgentMiddleware]:
    """Return what hides a profile's excluded tools and tells others in its words."""
    changes: list[AgentMiddleware] = []
    if profile.excluded_tools:
        changes.append(shipped.ToolExclusionMiddleware(profile.excluded_tools))
    if profile.tool_description_overrides:
        changes.append(shipped.ToolDescriptionMiddleware(profile.tool_description_overrides))
    return changes


def extra_middleware(wanted: Mapping[str, Mapping[str, Any]]) -> list[AgentMiddleware]:
    """Return middleware that ships, by class name, made with these keyword arguments.

    Raises:
        AgentBuildError: It does not take them.
    """
    made: list[AgentMiddleware] = []
    for name, arguments in wanted.items():
        try:
            made.append(getattr(shipped, name)(**arguments))
        except (HarnessError, TypeError, ValueError) as error:
            given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise AgentBuildError(
                f"the extra middleware {name}({given}) cannot be made: {error}"
            ) from error
    return made


def fitted(
    profile: Profile,
    before: Sequence[AgentMiddleware],
    given: Sequence[AgentMiddleware],
    after: Sequence[AgentMiddleware],
) -> list[AgentMiddleware]:
    """Return a stack as a profile wants it, outermost first.

    Args:
        profile: Leaves out and replaces built-in middleware; what it adds comes after `given`.
        before: Built-in middleware.
        given: The caller's own, which a profile does not touch.
        after: More built-in middleware.

    Raises:
        AgentBuildError: An extra middleware cannot be made.
    """
    extra = {one.name: one for one in extra_middleware(profile.extra_middleware)}
    there = {one.name for one in (*before, *given, *after)}
    added = [one for name, one in extra.items() if name not in there]
    return [
        *_changed(before, profile, extra),
        *given,
        *added,
        *_changed(after, profile, extra),
    ]


def _changed(
    stack: Sequence[AgentMiddleware], profile: Profile, extra: Mapping[str, AgentMiddleware]
) -> list[AgentMiddleware]:
    return [extra.get(one.name, one) for one in stack if not _is_left_out(one, profile)]


def _is_left_out(one: AgentMiddleware, profile: Profile) -> bool:
    if one.name in profile.excluded_middleware:
        return True
    return one.name in _TEACHERS and all(
        fits(tool.name, profile.excluded_tools) for tool in one.tools
    )
