"""Profile: settings for one model, or for all models of a provider."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, fields, replace
from typing import Any

from .. import middleware as shipped
from .._internal.records import record
from ..errors import AgentBuildError

__all__ = ["EXCLUDABLE", "EXTRAS", "GeneralPurpose", "Profile"]

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
    """How the built-in general-purpose subagent differs; None leaves a thing as it is.

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
    """What `create_deep_agent` does differently for a model. Everything is optional.

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
