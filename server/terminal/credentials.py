"""Credentials: checks whether the model of a run in this process can be used at all.

The check only reads variables and files: it sends nothing, and imports no SDK. If an SDK finds
credentials in its own way, as those of clouds do, nothing is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...harness.errors import HarnessError
from ...harness.models.registry import DEFAULT_MODEL, init_chat_model, unset_variables
from ..settings.definition import definition_of
from ..settings.settings import Settings
from .states import NotStarted

if TYPE_CHECKING:
    from ...harness.subagents.definitions import SubAgent

__all__ = ["require_model"]


def require_model(settings: Settings, agent: str = "") -> None:
    """Refuse to start with a model that cannot be built, or has no key. Blocks.

    Args:
        settings: The settings of the server in this process.
        agent: The agent that works; empty for the main agent. The server refuses one that it does
            not know.

    Raises:
        NotStarted: Its first call would certainly fail.
    """
    described = definition_of(settings)
    if described is not None and (described.parts.model or described.parts.middleware):
        return  # a model made in Python, or middleware that may ask another
    own: Mapping[str, Any] = {} if described is None else described.parts.model_settings
    name = settings.model or DEFAULT_MODEL
    if agent not in ("", "main", described and described.file.agent.name):
        found = _subagent(settings, agent)
        if found is None or found.middleware:
            return
        if found.model is not None:
            if not isinstance(found.model, str):
                return
            name, own = found.model, {}
    try:
        from ...harness.profiles import ProfileRegistry

        profile = ProfileRegistry(settings.profiles).for_model(name)
        model = init_chat_model(name, **{**profile.init_kwargs, **own})
    except HarnessError as error:
        said = str(error).removesuffix("Nothing was sent.").rstrip(". ")
        raise NotStarted(f"{said}. Nothing was started.") from None
    if missing := unset_variables(model):
        raise NotStarted(
            f"{model.name} cannot be used without {' or '.join(missing)}. Nothing was started. Set "
            "this variable, or choose another model with --model; `deep-agent-mcp models` shows "
            "which are ready."
        )


def _subagent(settings: Settings, name: str) -> SubAgent | None:
    """Return a subagent of the agent file or the directory; None if neither has it."""
    from ...harness.subagents.definitions import SubAgent
    from ...harness.subagents.registry import SubAgentRegistry

    described = definition_of(settings)
    given = () if described is None else described.parts.subagents
    own = settings.without_principal()
    known = SubAgentRegistry(own.agents, given=given, untrusted=own.untrusted).subagents
    found = known.get(name)
    return found if isinstance(found, SubAgent) else None
