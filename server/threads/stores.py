"""Opens the long-term store of agents that the settings name."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..settings.settings import Settings

if TYPE_CHECKING:
    from ...harness.store.base import Store

__all__ = ["open_agents_store"]


@asynccontextmanager
async def open_agents_store(settings: Settings) -> AsyncGenerator[Store | None]:
    """Yield the store of all agents, which connects at its first use; None if none is named."""
    if settings.store is None:
        yield None
        return
    from ...harness.agent_file.places import open_store  # few have one

    store = open_store(settings.store.get_secret_value())
    try:
        yield store
    finally:
        await store.close()
