"""The store protocol: the items of a long-term store, and the operations on them.

A store outlives threads and runs: an agent uses it for long-term knowledge. It contains *items*:
JSON objects under a key in a *namespace*, a tuple such as `("memories", "ann")`. All access is by
*operations*; a batch of operations is one transaction.
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
"""Conditions that a value must all meet: a path such as `a.b`, and the required value.

The required value is JSON, or an object of operators: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`. A
missing key counts as null. The last four compare numbers with numbers and strings with strings (by
code point); all other values fail. Paths only go through objects, and cannot contain keys with a
dot.
"""

Index: TypeAlias = Sequence[str] | Literal[False]
"""The texts of a value that a `query` searches: paths such as `a.b` or `a[*].c`, or False for none.

`$` means every string anywhere in the value. A path to an object or a list means every string in
it; a path to a number or a boolean means its JSON text.
"""

Ttl: TypeAlias = float | Literal["default"] | None
"""Seconds until an item expires; None for never, `default` for the store's default."""

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
        namespace: The namespace of the item.
        key: Unique within the namespace.
        value: A JSON object; a copy, so changing it changes nothing in the store.
        created_at: Unix time in seconds. Replacing the value does not change it.
        updated_at: Unix time in seconds of the last put.
        expires_at: Unix time in seconds at which it expires; None for never.
        score: How well it fits the query of the search that found it, higher is better: cosine
            similarity where a store embeds texts, otherwise a number that is only comparable within
            the same search. None without a query.
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
"""The result of an operation: the return value of the method of the same name."""


class StoreOptions(TypedDict, total=False):
    """Options that every store takes.

    Attributes:
        index: The paths that a `query` searches in items without their own; by default `["$"]`.
        embed: Makes a `query` search by meaning instead of by words. It is called outside of
            transactions, once a batch, with each text once.
        dims: Length of the vectors; by default that of the first vectors.
        default_ttl: Seconds until an item without its own `ttl` expires; by default None.
        refresh_on_read: Whether `get` and `search` restart the lifetime of returned items; by
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

    Stored values are only data: nothing in them is ever imported or called. No operation sees an
    expired item.
    """

    async def get(self, namespace: Namespace, key: str) -> Item | None:
        """Return an item, or None if it does not exist.

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
            index: Paths that a `query` searches; by default the store's paths.
            ttl: Seconds until it expires.

        Raises:
            InvalidNamespace: The namespace breaks the rules; nothing was stored.
            InvalidOperation: The value is not JSON, or something else is not as described;
                nothing was stored.
            StoreError: The store cannot be written; nothing was stored.
        """
        ...

    async def delete(self, namespace: Namespace, key: str) -> None:
        """Delete an item; a missing item is not an error.

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
            prefix: The first segments of their namespaces, each compared as a whole; by default all
                items.
            query: Plain text in any language. Only matching indexed items are returned, best first:
                by meaning if the store embeds texts, otherwise items with any of the words,
                ignoring case and accents. It has no syntax. Blank is the same as None.
            filter: Conditions on the values.
            limit: The most results to return.
            offset: How many to skip.

        Returns:
            The items; without a query, in order of namespace and key, which does not change when
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
        """Return the namespaces that contain items, in order, each once.

        Args:
            prefix: Their first segments; `*` matches any segment.
            suffix: Their last segments; `*` matches any segment.
            max_depth: Longer namespaces are cut to this number of segments, after prefix and suffix
                were compared.
            limit: The most results to return.
            offset: How many to skip.

        Raises:
            InvalidOperation: An argument is not as described.
            StoreError: The store cannot be read.
        """
        ...

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        """Run operations in order in one transaction: all of them, or none.

        Each operation sees the effects of the earlier ones.

        Returns:
            For each operation, the return value of its method.

        Raises:
            InvalidOperation: One of them is not as described; nothing was done.
            StoreError: The store cannot be read or written; nothing was done.
        """
        ...

    async def close(self) -> None:
        """Release all resources, finally; a second call does nothing."""
        ...
