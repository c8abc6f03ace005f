"""Opens the store and the cache of agents that the settings and the agent file name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from ..settings.definition import definition_of
from ..settings.settings import Settings

if TYPE_CHECKING:
    from ...harness.cache import Cache
    from ...harness.store.base import Store

__all__ = ["open_agents_cache", "open_agents_store"]


@asynccontextmanager
async def open_agents_store(settings: Settings) -> AsyncGenerator[Store | None]:
    """Yield the store of all agents, which connects at its first use; None if none is named."""
    if settings.store is None:
        yield None
        return
    from ...harness.agent_file.places import open_store  # few have one

    described = definition_of(settings)
    vectors: Mapping[str, Any] = {} if described is None else described.parts.vectors
    store = open_store(settings.store.get_secret_value(), **vectors)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_agents_cache(settings: Settings) -> AsyncGenerator[Cache | None]:
    """Yield the cache of all agents, which is opened at its first use; None if none is named."""
    described = definition_of(settings)
    if described is None or described.parts.cache is None:
        yield None
        return
    from ...harness.agent_file.places import open_cache  # few have one

    cache = open_cache(described.parts.cache, base=described.path.parent)
    try:
        yield cache
    finally:
        close = cast("Callable[[], Awaitable[None]] | None", getattr(cache, "close", None))
        if close is not None:
            await close()
