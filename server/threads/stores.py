"""Stores and caches of agents: those that the settings and the agent file name, as saved last."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..settings.definition import definition_of
from ..settings.settings import Settings

if TYPE_CHECKING:
    from ...harness.cache import Cache
    from ...harness.store.base import Store

__all__ = ["ReloadableStores"]


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
