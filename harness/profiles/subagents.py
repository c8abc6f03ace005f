"""The subagents of a registry, with the general-purpose one as a profile wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..subagents.definitions import GENERAL_PURPOSE, AnySubAgent
from ..subagents.registry import SubAgentRegistry
from .profile import GeneralPurpose

__all__ = ["ProfiledSubAgents"]


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
