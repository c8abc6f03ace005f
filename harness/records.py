"""Copies of frozen records with some fields changed, several times faster than the standard way.

A round of the loop makes about a dozen such copies; with `dataclasses.replace` they were an
eighth of its time (`python -m benchmarks loop`).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

__all__ = ["changed"]

T = TypeVar("T")

_READERS: dict[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}


def changed(record: T, **changes: Any) -> T:
    """Return a copy of a slotted dataclass without `__post_init__`, with some fields changed.

    Raises:
        TypeError: There is no such field.
    """
    kind: type[Any] = type(record)
    known = _READERS.get(kind)
    if known is None:
        fields = tuple(kind.__dataclass_fields__)
        # A second name, so that there is a tuple even of one field.
        known = _READERS[kind] = fields, attrgetter(*fields, "__class__")
    names, read = known
    copy = object.__new__(kind)
    assign = object.__setattr__
    for name, value in zip(names, read(record), strict=False):
        assign(copy, name, value)
    for name, value in changes.items():
        if name not in kind.__dataclass_fields__:
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        assign(copy, name, value)
    return copy
