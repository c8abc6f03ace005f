"""The agent of new runs and its model, made anew when what they are made from has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...harness.agent import Agent
from ...harness.errors import HarnessError
from ...harness.models.base import ChatModel
from ...harness.models.registry import DEFAULT_MODEL
from ..reload.profile_files import ProfileFiles
from ..sampling.model import SamplingModel
from ..settings.settings import Settings
from .lazy_model import LazyModel
from .sampling_fallback import OwnOrClientsModel

__all__ = ["ReloadableAgent", "ReloadableModels"]

logger = logging.getLogger(__name__)


class ReloadableAgent:
    """Returns the agent. Runs that have begun keep the one they began with.

    Args:
        build: Builds it from what there is now.
    """

    def __init__(self, build: Callable[[], Agent]) -> None:
        self._build = build
        self._agent: Agent | None = None
        self._outdated = False

    def __call__(self) -> Agent:
        """Return the agent; it is built when it is first needed, and when it is out of date.

        Raises:
            HarnessError: There is none yet, and it cannot be built.
        """
        if self._agent is None:
            self._outdated = False
            self._agent = self._build()
        elif self._outdated:
            self._outdated = False
            try:
                self._agent = self._build()
            except HarnessError as error:
                logger.error("the agent stays as it was, because it cannot be built: %s", error)
        return self._agent

    def outdate(self) -> None:
        """Have it built anew for the next run. Safe on any thread."""
        self._outdated = True


class ReloadableModels:
    """The models of the agents there have been; a run may still use an earlier one."""

    def __init__(self, profiles: ProfileFiles) -> None:
        self._profiles = profiles
        self._made: list[tuple[object, ChatModel]] = []

    def of(self, settings: Settings) -> ChatModel:
        """Return the model these settings name, made of what its profile says now."""
        name = settings.model or DEFAULT_MODEL
        given = self._profiles.current.for_model(name).init_kwargs
        asked = (settings.model, given)
        for known, model in self._made:
            if known == asked:
                return model
        if settings.model:
            model = LazyModel(name, given)
        else:
            model = OwnOrClientsModel(name, given, SamplingModel())
        self._made.append((asked, model))
        return model

    async def aclose(self) -> None:
        """Release their connections."""
        for _, model in self._made:
            await model.aclose()
