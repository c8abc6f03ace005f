"""Reloadable agent: the agent of new runs, rebuilt when its settings change."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from ...harness.agent import Agent
from ...harness.errors import HarnessError, ModelError
from ...harness.messages.message import AIMessage
from ...harness.models.base import ChatModel, ChatRequest, Delta
from ...harness.models.names import DEFAULT_MODEL, canonical_name
from ...harness.models.registry import init_chat_model
from ..reload import ProfileFiles
from ..sampling.client_model import SamplingModel, declared, sampling_model
from ..sampling.queue import current_run
from ..settings.definition import definition_of
from ..settings.setting_types import is_sampling
from ..settings.settings import Settings

if TYPE_CHECKING:
    from ...harness.cache import Cache
    from ...harness.store.base import Store

__all__ = ["KEYS", "LazyModel", "ReloadableAgent", "ReloadableModels", "ReloadableStores"]

logger = logging.getLogger(__name__)


class ReloadableAgent:
    """Returns the agent. Running runs keep their agent.

    Args:
        build: Builds it from the current files and settings.
    """

    def __init__(self, build: Callable[[], Agent]) -> None:
        self._build = build
        self._agent: Agent | None = None
        self._outdated = False

    def __call__(self) -> Agent:
        """Return the agent; it is built at the first use, and again when it is out of date.

        Raises:
            HarnessError: There is no agent yet, and it cannot be built.
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

    @property
    def built(self) -> Agent | None:
        """The agent, if there is one already."""
        return self._agent

    def outdate(self) -> None:
        """Have it built again for the next run. Safe on any thread."""
        self._outdated = True


class ReloadableModels:
    """The models of the agents there have been; a run may still use an earlier one."""

    def __init__(self, profiles: ProfileFiles) -> None:
        self._profiles = profiles
        self._made: list[tuple[object, ChatModel]] = []

    def of(self, settings: Settings) -> ChatModel:
        """Return the model these settings name, made of what its profile says now."""
        name = settings.model or DEFAULT_MODEL
        described = definition_of(settings)
        own: Mapping[str, Any] = {} if described is None else described.parts.model_settings
        made = None if described is None else described.parts.model
        given = {**self._profiles.current.for_model(name).init_kwargs, **own}
        asked = (settings.model, given, made)
        for known, model in self._made:
            if known == asked:
                return model
        if made is not None:
            model = made
        elif settings.model:
            model = LazyModel(name, given)
        else:
            model = OwnOrClientsModel(name, given, SamplingModel())
        self._made.append((asked, model))
        return model

    async def aclose(self) -> None:
        """Release their connections."""
        for _, model in self._made:
            await model.aclose()


class LazyModel:
    """Stands for the model of that name until a run first needs it.

    A wrong name, a missing script or a missing key must not keep the server from starting:
    everything but delegation works without a model, and the failed run says what to set.

    Args:
        name: For `init_chat_model`, or `sampling`; None for the default.
        settings: Keywords that go with it.
    """

    def __init__(self, name: str | None, settings: Mapping[str, Any] | None = None) -> None:
        self._name = name or DEFAULT_MODEL
        self._settings = dict(settings or {})
        self._made: ChatModel | None = None

    @property
    def _model(self) -> ChatModel:
        if self._made is None:
            make = sampling_model if is_sampling(self._name) else init_chat_model
            self._made = make(self._name, **self._settings)
        return self._made

    @property
    def name(self) -> str:
        """The configured name, as the model itself spells it; once made, the model's own."""
        return canonical_name(self._name) if self._made is None else self._made.name

    @property
    def context_window(self) -> int | None:
        """Input tokens the model accepts, if known.

        Raises:
            HarnessError: The model cannot be made.
        """
        return self._model.context_window

    @property
    def native_output(self) -> bool:
        """Whether the model honours `ChatRequest.output_schema`.

        Raises:
            HarnessError: The model cannot be made.
        """
        return self._model.native_output

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Ask the model.

        Raises:
            HarnessError: The model cannot be made, or its call failed.
        """
        answer = self._model.stream(request)
        try:
            async for part in answer:
                yield part
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        """Release connections, if any were made."""
        if self._made is not None:
            await self._made.aclose()


KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class OwnOrClientsModel(LazyModel):
    """The server's own model, or the client's while there is no key for it.

    Whether there is a key, the own model says itself: there are more ways to give it one than
    variables.

    Args:
        name: The server's own.
        settings: Keywords that go with it.
        clients: Asked in its place.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], clients: SamplingModel) -> None:
        super().__init__(name, settings)
        self._clients = clients
        self._keyless: tuple[str | None, ...] | None = None

    @property
    def _asks_clients(self) -> bool:
        """Whether the client's is known, or likely, to be asked."""
        return self._keyless == _variables() and _is_lent()

    @property
    def _model(self) -> ChatModel:
        return self._clients if self._asks_clients else super()._model

    @property
    def name(self) -> str:
        """Name of the one that is asked."""
        return self._clients.name if self._asks_clients else super().name

    @property
    def native_output(self) -> bool:
        """Whether it certainly is one that honours `ChatRequest.output_schema`.

        Raises:
            HarnessError: The model cannot be made.
        """
        return any(_variables()) and super().native_output

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Ask the own model; without a key, the client's.

        Raises:
            ModelError: There is neither, or the call failed.
        """
        if not self._asks_clients:
            try:
                async with aclosing(super().stream(request)) as answer:
                    async for part in answer:
                        yield part
                return
            except ModelError as error:
                if not _is_missing_key(error):
                    raise
                self._keyless = _variables()
                if not _is_lent():
                    request.unasked()
                    raise _nobody(error) from error
        async with aclosing(self._clients.stream(request)) as answer:
            async for part in answer:
                yield part


def _variables() -> tuple[str | None, ...]:
    return tuple(os.environ.get(one) or None for one in KEYS)


def _is_lent() -> bool:
    """Whether the client of this run offers its model, or may offer it later."""
    run = current_run.get()
    return run is not None and run.offer in ("tools", None)


def _is_missing_key(error: ModelError) -> bool:
    from ...harness.models.anthropic import MISSING_KEY  # imported already, if it has raised

    return error.kind == "auth" and str(error) == MISSING_KEY


def _nobody(error: ModelError) -> ModelError:
    run = current_run.get()
    text = f"{error} An MCP client that offers its own model (sampling) works without a key"
    text += f"; {declared('plain')}." if run is not None and run.offer == "plain" else "."
    return ModelError(text, kind="auth")


class ReloadableStores:
    """The stores and caches there have been; a run may still use an earlier one.

    What is named again is the same object, so that one in memory keeps what it has. Each connects
    at its first use. Safe on any thread, but for `aclose`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[tuple[object, Store | Cache]] = []

    def store(self, settings: Settings) -> Store | None:
        """Return the store that settings name; None if they name none.

        Raises:
            AgentBuildError: There cannot be one there, or an extra is missing.
        """
        if settings.store is None:
            return None
        url = settings.store.get_secret_value()
        described = definition_of(settings)
        vectors: Mapping[str, Any] = {} if described is None else described.parts.vectors

        def make() -> Store:
            from ...harness.agent_file.places import open_store  # few have one

            return open_store(url, **vectors)

        return cast("Store", self._known(("store", url, dict(vectors)), make))

    def cache(self, settings: Settings) -> Cache | None:
        """Return the cache that the agent file names; None if it names none.

        Raises:
            AgentBuildError: There cannot be one there, or an extra is missing.
        """
        described = definition_of(settings)
        if described is None or described.parts.cache is None:
            return None
        url, base = described.parts.cache, described.path.parent

        def make() -> Cache:
            from ...harness.agent_file.places import open_cache  # few have one

            return open_cache(url, base=base)

        return cast("Cache", self._known(("cache", url, base), make))

    def take(self, settings: Settings) -> None:
        """Make what settings name, so that what is wrong with it is found before it is used.

        Raises:
            AgentBuildError: It cannot be made.
        """
        self.store(settings)
        self.cache(settings)

    async def aclose(self) -> None:
        """Close all of them."""
        for _, one in self._made:
            close = cast("Callable[[], Awaitable[None]] | None", getattr(one, "close", None))
            if close is not None:
                await close()

    def _known(self, asked: object, make: Callable[[], Store | Cache]) -> Store | Cache:
        with self._lock:
            for known, one in self._made:
                if known == asked:
                    return one
            made = make()
            self._made.append((asked, made))
            return made
