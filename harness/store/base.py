"""The store protocol: the items a long-term store keeps, and the operations on them.

A store outlives threads and runs: it is where an agent keeps what it learns. It holds *items*, JSON
objects under a key in a *namespace*, a tuple such as `("memories", "ann")`. Everything that is
done to a store is an *operation*; a batch of them is one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, TypedDict

from pydantic import JsonValue

from .._internal.records import record
from ..errors import HarnessError

__all__ = [
    "Delete",
    "Embed",
    "Filter",
    "Get",
    "Index",
    "InvalidNamespace",
    "InvalidOperation",
    "Item",
    "ListNamespaces",
    "Namespace",
    "NewerStore",
    "Operation",
    "Put",
    "Result",
    "Search",
    "Store",
    "StoreError",
    "StoreOptions",
    "Ttl",
]

Namespace: TypeAlias = tuple[str, ...]
"""Where items are: segments from the outermost in.

A segment is text of at least one character, without dots and control characters, and is not `*`.
"""

Filter: TypeAlias = Mapping[str, JsonValue]
"""Conditions on values that all must hold: a path such as `a.b`, and what has to be there.

What has to be there is a JSON value, or an object of operators: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`,
`$lte`. A key that is missing counts as null. The last four compare numbers with numbers and strings
with strings (by code point); nothing else fulfils them. Paths lead through objects only, and keys
that contain a dot cannot be reached.
"""

Index: TypeAlias = Sequence[str] | Literal[False]
"""Which texts of a value a `query` searches: paths such as `a.b` or `a[*].c`, or False for none.

`$` stands for every string anywhere in the value. A path that leads to an object or a list stands
for every string in it; one that leads to a number or a boolean for its JSON text.
"""

Ttl: TypeAlias = float | Literal["default"] | None
"""Seconds until an item expires; None for never, `default` for what the store was made with."""

Embed: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Turns texts into vectors, one for each text in the same order, all of the same length."""


class StoreError(HarnessError):
    """A store could not be read or written."""


class InvalidOperation(StoreError):
    """Error: an operation is not valid; nothing of its batch was done."""


class InvalidNamespace(InvalidOperation):
    """A namespace breaks the rules; nothing was done."""


class NewerStore(StoreError):
    """The store was written by a newer version; it was not touched."""


@record
class Item:
    """Item stored under a key.

    Attributes:
        namespace: Where it is.
        key: Unique within the namespace.
        value: A JSON object; a copy, so changing it changes nothing in the store.
        created_at: Unix time in seconds. It stays when the value is replaced.
        updated_at: Unix time in seconds of the last put.
        expires_at: Unix time in seconds from which on it is gone; None for never.
        score: How well it fits the query of the search that found it, higher is better: cosine
            similarity where a store embeds texts, else a figure that compares only with those of
            the same search. None where there was no query.
    """

    namespace: Namespace
    key: str
    value: dict[str, JsonValue]
    created_at: float
    updated_at: float
    expires_at: float | None = None
    score: float | None = None


@record
class Get:
    """See `Store.get`."""

    namespace: Namespace
    key: str


@record
class Put:
    """See `Store.put`."""

    namespace: Namespace
    key: str
    value: Mapping[str, JsonValue]
    index: Index | None = None
    ttl: Ttl = "default"


@record
class Delete:
    """See `Store.delete`."""

    namespace: Namespace
    key: str


@record
class Search:
    """See `Store.search`."""

    prefix: Namespace = ()
    query: str | None = None
    filter: Filter | None = None
    limit: int = 10
    offset: int = 0


@record
class ListNamespaces:
    """See `Store.list_namespaces`."""

    prefix: Namespace = ()
    suffix: Namespace = ()
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0


Operation: TypeAlias = Get | Put | Delete | Search | ListNamespaces

Result: TypeAlias = Item | Sequence[Item] | Sequence[Namespace] | None
"""What an operation answers: what the method of the same name returns."""


class StoreOptions(TypedDict, total=False):
    """Options that every store takes.

    Attributes:
        index: What a `query` searches in items that do not say it themselves; by default `["$"]`.
        embed: Makes a `query` search by meaning instead of by words. It is called outside of
            transactions, once a batch, with each text once.
        dims: Length of the vectors; by default what the first ones have.
        default_ttl: Seconds until an item expires that does not say it itself; by default None.
        refresh_on_read: Whether an item that `get` or `search` returns begins its time anew; by
            default False.
        clock: Unix time in seconds.
    """

    index: Index
    embed: Embed | None
    dims: int | None
    default_ttl: float | None
    refresh_on_read: bool
    clock: Callable[[], float]


class Store(Protocol):
    """Store: items by namespace and key. Safe for concurrent callers in one event loop.

    Whatever is stored is data: nothing in it is ever imported or called. An expired item is gone
    for every operation from the moment it expires.
    """

    async def get(self, namespace: Namespace, key: str) -> Item | None:
        """Return an item, or None if there is none.

        Raises:
            InvalidOperation: Namespace or key break the rules.
            StoreError: The store cannot be read.
        """
        ...

    async def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, JsonValue],
        *,
        index: Index | None = None,
        ttl: Ttl = "default",
    ) -> None:
        """Store an item, in place of an older one under the same key.

        Args:
            namespace: Where.
            key: Text of 1 to 1,024 bytes, without control characters.
            value: A JSON object.
            index: Paths that a `query` searches; by default those of the store.
            ttl: Seconds until it expires.

        Raises:
            InvalidNamespace: The namespace breaks the rules; nothing was stored.
            InvalidOperation: The value is not JSON, or something else is not as described;
                nothing was stored.
            StoreError: The store cannot be written; nothing was stored.
        """
        ...

    async def delete(self, namespace: Namespace, key: str) -> None:
        """Delete an item; one that is not there is no error.

        Raises:
            InvalidOperation: Namespace or key break the rules.
            StoreError: The store cannot be written; nothing was deleted.
        """
        ...

    async def search(
        self,
        prefix: Namespace = (),
        *,
        query: str | None = None,
        filter: Filter | None = None,  # noqa: A002  the word every peer uses
        limit: int = 10,
        offset: int = 0,
    ) -> Sequence[Item]:
        """Return items below a namespace.

        Args:
            prefix: The first segments of their namespaces, compared whole; by default all items.
            query: Plain text in any language. Only indexed items that fit it come back, best
                first: by meaning where the store embeds texts, else those with any of the words,
                case and accents ignored. Nothing in it is syntax. Blank is the same as None.
            filter: Conditions on the values.
            limit: How many to return at most.
            offset: How many to skip.

        Returns:
            The items; without a query in order of namespace and key, which stays the same while
            items are replaced.

        Raises:
            InvalidOperation: An argument is not as described.
            StoreError: The store cannot be read.
        """
        ...

    async def list_namespaces(
        self,
        *,
        prefix: Namespace = (),
        suffix: Namespace = (),
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Namespace]:
        """Return the namespaces that hold items, in order, each once.

        Args:
            prefix: Their first segments; `*` stands for any one.
            suffix: Their last segments; `*` stands for any one.
            max_depth: Longer ones are cut to so many segments, after prefix and suffix were
                compared.
            limit: How many to return at most.
            offset: How many to skip.

        Raises:
            InvalidOperation: An argument is not as described.
            StoreError: The store cannot be read.
        """
        ...

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        """Run operations in order in one transaction: all of them, or none.

        Each sees what those before it did.

        Returns:
            For each operation what its method returns.

        Raises:
            InvalidOperation: One of them is not as described; nothing was done.
            StoreError: The store cannot be read or written; nothing was done.
        """
        ...

    async def close(self) -> None:
        """Release what is held; a second call does nothing. Final."""
        ...
