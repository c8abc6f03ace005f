"""HTTP clients of models, one for each model and event loop: connections belong to a loop."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

__all__ = ["LoopClients"]

_Client = TypeVar("_Client")

_MANY_MODULES = 100
"""So many new modules are an SDK."""


@dataclass(slots=True)
class _OfLoop(Generic[_Client]):
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    made: WeakKeyDictionary[object, tuple[Hashable, _Client]] = field(
        default_factory=WeakKeyDictionary[object, "tuple[Hashable, _Client]"]
    )


class LoopClients(Generic[_Client]):
    """The clients of all models of one kind, by event loop.

    Args:
        name: Of the kind, for debugging.
    """

    def __init__(self, name: str) -> None:
        self._loops: RunVar[_OfLoop[_Client]] = RunVar(name)

    async def get(
        self, model: object, credentials: Hashable, make: Callable[[], _Client]
    ) -> _Client:
        """Return this loop's client of a model.

        Args:
            model: Whose client it is.
            credentials: What it is made for; with others, a new one is made.
            make: Makes one. It is called in a thread, as it may import an SDK.
        """
        loop = self._loops.get(None)
        if loop is None:
            loop = _OfLoop[_Client]()
            self._loops.set(loop)
        async with loop.lock:
            known = loop.made.get(model)
            if known is None or known[0] != credentials:
                client = await anyio.to_thread.run_sync(_without_collections, make)
                known = loop.made[model] = credentials, client
        return known[1]

    def pop(self, model: object) -> _Client | None:
        """Forget and return this loop's client of a model, if there is one."""
        loop = self._loops.get(None)
        known = loop.made.pop(model, None) if loop is not None else None
        return None if known is None else known[1]


def _without_collections(make: Callable[[], _Client]) -> _Client:
    """Call it while no garbage is collected.

    An SDK makes some hundred thousand objects that stay. Each collection among them would hold up
    all other threads for a tenth of a second, and so would the next one after them.
    """
    collects, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        return make()
    finally:
        if collects:
            if len(sys.modules) > before + _MANY_MODULES:
                gc.freeze()
            gc.enable()
