"""Conformance kit: checks that a store does what `harness.store.base.Store` promises.

In one call, which raises the broken promises::

    await check_store(open_store)

or with pytest, a test for each promise::

    @pytest.mark.parametrize("promise", promises(), ids=str)
    async def test_my_store(promise):
        await promise.check(open_store)

`open_store` is called with `StoreOptions` and returns an async context manager that gives a new,
empty store made with them, such as `lambda options: MyStore(**options)`. Every promise opens
separate stores. Promises about words are checked without an embedding function, promises about
meanings with one, and all others both ways.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from inspect import iscoroutinefunction
from types import ModuleType

from .._internal.records import record
from ._conformance_cases import (
    OpenStore,
    batches,
    expiry,
    items,
    letters,
    namespaces,
    nearness,
    searches,
)
from ._conformance_cases import full_text as words
from .base import Store, StoreOptions

__all__ = ["OpenStore", "Promise", "check_store", "promises"]

_ALWAYS = (items, batches, namespaces, searches, expiry)


@record
class Promise:
    """Something that a store promises.

    Attributes:
        name: The promise, such as `expiry: a put begins the time anew (embedded)`.
        embedded: Whether it is checked with an embedding function.
    """

    name: str
    embedded: bool
    _law: Callable[[OpenStore], Awaitable[None]]

    def __str__(self) -> str:
        return self.name

    async def check(self, open_store: OpenStore) -> None:
        """Check it.

        Args:
            open_store: Opens a new, empty store.

        Raises:
            AssertionError: The promise is broken; the message contains the expected behaviour.
        """

        def open_embedded(options: StoreOptions) -> AbstractAsyncContextManager[Store]:
            return open_store({"embed": letters, **options})

        await self._law(open_embedded if self.embedded else open_store)


def promises(*, embedded: bool = True) -> list[Promise]:
    """Return all promises.

    Args:
        embedded: Whether to include promises that need an embedding function.
    """
    found = [one for module in (*_ALWAYS, words) for one in _in(module, embedded=False)]
    if embedded:
        found += [one for module in (*_ALWAYS, nearness) for one in _in(module, embedded=True)]
    return found


async def check_store(open_store: OpenStore, *, embedded: bool = True) -> None:
    """Check every promise, one after the other.

    Args:
        open_store: Opens a new, empty store.
        embedded: Whether to check promises that need an embedding function.

    Raises:
        ExceptionGroup: Some promises are broken; each of its exceptions has the name of its promise
            as a note.
    """
    failures: list[Exception] = []
    for promise in promises(embedded=embedded):
        try:
            await promise.check(open_store)
        except Exception as error:  # noqa: BLE001  collected and raised below
            error.add_note(promise.name)
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} promises of the store are broken", failures)


def _in(module: ModuleType, *, embedded: bool) -> Iterator[Promise]:
    place = module.__name__.rpartition(".")[2]
    for name, law in vars(module).items():
        if iscoroutinefunction(law) and law.__module__ == module.__name__ and name[0] != "_":
            ending = " (embedded)" if embedded else ""
            yield Promise(f"{place}: {name.replace('_', ' ')}{ending}", embedded, law)
