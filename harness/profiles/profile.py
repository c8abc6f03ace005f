"""Profile: settings for one model, or for all models of a provider.

A profile can also change the stack of middleware and the general-purpose subagent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from .. import middleware as shipped
from .._internal.patterns import fits
from .._internal.records import record
from ..errors import AgentBuildError, HarnessError
from ..loop.hooks.middleware import AgentMiddleware
from ..subagents.definitions import GENERAL_PURPOSE, AnySubAgent
from ..subagents.registry import SubAgentRegistry

__all__ = [
    "EXCLUDABLE",
    "EXTRAS",
    "GeneralPurpose",
    "Profile",
    "ProfiledSubAgents",
    "about_tools",
    "extra_middleware",
    "fitted",
]


EXCLUDABLE = (
    "BudgetWarningMiddleware",
    "MemoryMiddleware",
    "ModelRetryMiddleware",
    "PatchToolCallsMiddleware",
    "PromptCachingMiddleware",
    "RepeatGuardMiddleware",
    "SkillsMiddleware",
    "SummarizationMiddleware",
    "TodoListMiddleware",
)
"""What a profile may leave out of a deep agent's stack.

Files and subagents belong to what a deep agent is, and approvals to what its operator decided.
"""

_FIXED = ("FilesystemMiddleware", "HumanInTheLoopMiddleware", "SubAgentMiddleware")

EXTRAS = tuple(
    name
    for name in shipped.__all__
    if name.endswith(("Middleware", "Selector", "Emulator")) and name not in _FIXED
)
"""What a profile may add to the stack, or put in the place of the built-in one of that name."""


@record
class GeneralPurpose:
    """Changes to the built-in general-purpose subagent; None leaves a thing as it is.

    Attributes:
        enabled: Whether it is there at all.
        description: What the caller's model chooses it by.
        system_prompt: Its instructions.
    """

    enabled: bool | None = None
    description: str | None = None
    system_prompt: str | None = None


@record
class Profile:
    """Changes that `create_deep_agent` makes for a model. Everything is optional.

    Attributes:
        base_system_prompt: Instead of the built-in base prompt; empty for none. Subagents have
            prompts of their own in its place.
        system_prompt_suffix: A section of the system prompt after the base prompt.
        tool_description_overrides: What the model reads about a tool, by the tool's name.
        excluded_tools: Names of tools, or globs, that are neither offered nor run.
        excluded_middleware: Names of built-in middleware to leave out, of `EXCLUDABLE`.
        extra_middleware: Keyword arguments of further middleware by class name, of `EXTRAS`. One
            that is in the stack already is replaced in its place.
        init_kwargs: Keywords for `init_chat_model`, such as `max_tokens` or `thinking`; they
            apply when the model is given by its name.
        general_purpose_subagent: How the subagent that is always there differs.

    Raises:
        AgentBuildError: Middleware is named that cannot be left out or added.
    """

    base_system_prompt: str | None = None
    system_prompt_suffix: str = ""
    tool_description_overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    excluded_tools: tuple[str, ...] = ()
    excluded_middleware: tuple[str, ...] = ()
    extra_middleware: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )
    init_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    general_purpose_subagent: GeneralPurpose = field(default_factory=GeneralPurpose)

    def __post_init__(self) -> None:
        _check("excluded_middleware", self.excluded_middleware, EXCLUDABLE)
        _check("extra_middleware", self.extra_middleware, EXTRAS)

    def refined(self, specific: Profile) -> Profile:
        """Return both as one.

        Suffixes and exclusions add up, mappings are merged by key; of anything else that both
        have, the specific one's counts.
        """
        base = specific.base_system_prompt
        suffixes = (self.system_prompt_suffix, specific.system_prompt_suffix)
        return Profile(
            base_system_prompt=self.base_system_prompt if base is None else base,
            system_prompt_suffix="\n\n".join(one for one in suffixes if one),
            tool_description_overrides={
                **self.tool_description_overrides,
                **specific.tool_description_overrides,
            },
            excluded_tools=_union(self.excluded_tools, specific.excluded_tools),
            excluded_middleware=_union(self.excluded_middleware, specific.excluded_middleware),
            extra_middleware={**self.extra_middleware, **specific.extra_middleware},
            init_kwargs={**self.init_kwargs, **specific.init_kwargs},
            general_purpose_subagent=replace(
                self.general_purpose_subagent, **_given(specific.general_purpose_subagent)
            ),
        )


def _given(general: GeneralPurpose) -> dict[str, Any]:
    values = {one.name: getattr(general, one.name) for one in fields(general)}
    return {name: value for name, value in values.items() if value is not None}


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _check(what: str, names: Collection[str], accepted: Collection[str]) -> None:
    unknown = [name for name in names if name not in accepted]
    if unknown:
        raise AgentBuildError(
            f"{what} names {', '.join(map(repr, unknown))}; accepted are {', '.join(accepted)}"
        )


_TEACHERS = ("SkillsMiddleware", "SubAgentMiddleware", "TodoListMiddleware")
"""Middleware whose prompt section is about its tools only, and goes with them."""


def about_tools(profile: Profile) -> list[AgentMiddleware]:
    """Return the middleware that hides a profile's excluded tools and changes descriptions."""
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


class ProfiledSubAgents:
    """A registry as a profile wants it. A general-purpose subagent of the user's own stays.

    Args:
        registry: The subagents; may change while runs go on.
        general: How the built-in general-purpose one differs.
    """

    def __init__(self, registry: SubAgentRegistry, general: GeneralPurpose) -> None:
        self._registry = registry
        self._general = replace(
            GENERAL_PURPOSE,
            description=general.description or GENERAL_PURPOSE.description,
            system_prompt=general.system_prompt or GENERAL_PURPOSE.system_prompt,
        )
        self._enabled = general.enabled is not False
        self._known: tuple[Mapping[str, AnySubAgent], Mapping[str, AnySubAgent]] = {}, {}

    @property
    def subagents(self) -> Mapping[str, AnySubAgent]:
        """The subagents by name, in order of names; the same mapping until they change."""
        there = self._registry.subagents
        if self._known[0] is not there:
            self._known = there, self._fitted(there)
        return self._known[1]

    def _fitted(self, there: Mapping[str, AnySubAgent]) -> Mapping[str, AnySubAgent]:
        return {
            name: self._general if one == GENERAL_PURPOSE else one
            for name, one in there.items()
            if self._enabled or one != GENERAL_PURPOSE
        }

    @property
    def registry(self) -> SubAgentRegistry:
        """The subagents as they were given."""
        return self._registry

    @property
    def can_have_any(self) -> bool:
        """Whether there are subagents, or may be once files are added."""
        return bool(self.subagents or self.roots)

    @property
    def roots(self) -> Sequence[Path]:
        """Directories of their files."""
        return self._registry.roots

    @property
    def fresh(self) -> bool:
        """Whether `refresh` has nothing to do."""
        return self._registry.fresh

    def refresh(self) -> None:
        """Scan the files again, unless that was done just now. Blocks."""
        self._registry.refresh()

    def get(self, name: str) -> AnySubAgent:
        """Return a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        subagents = self.subagents
        if name not in subagents:
            raise self._registry.unknown(name, subagents)
        return subagents[name]
