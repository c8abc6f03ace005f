"""Frozen, slotted dataclasses that are cheap to make and to copy.

A frozen dataclass assigns each field through `object.__setattr__`, a mutable one by a machine
instruction. A round of the loop makes about fifty records, and that difference was a sixth of
its time (`python -m benchmarks loop`). So a record is filled while it is an instance of a mutable
twin of its class, with the same slots, and becomes one of the frozen class when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, wraps
from typing import Any, TypeVar, cast, dataclass_transform

__all__ = ["changed", "record"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Return the class as `dataclass(frozen=True, slots=True)` makes it, with a faster `__init__`.

    For classes without bases, `__post_init__`, and fields that are keyword-only or not arguments.
    Subclasses work as they do with the standard decorator.
    """
    kind: type[Any] = dataclass(frozen=True, slots=True)(cls)
    kind.__init__ = _fast_init(kind)
    return kind


def changed(record: T, /, **changes: Any) -> T:
    """Return a copy of a frozen dataclass without `__post_init__`, with some fields changed.

    Raises:
        TypeError: There is no such field.
    """
    kind: type[Any] = type(record)
    try:
        copy: Any = _copier(kind)(record)
    except TypeError:  # not a class of slots alone
        return replace(cast(Any, record), **changes)
    for name, value in changes.items():
        try:
            setattr(copy, name, value)
        except AttributeError:
            raise TypeError(f"{kind.__name__} has no field {name!r}") from None
    copy.__class__ = kind
    return copy


def _twin(kind: type[Any]) -> type[Any]:
    """Return a mutable class whose instances can become instances of `kind`."""
    twin = type(kind.__name__, (), {"__slots__": tuple(one.name for one in fields(kind))})
    instance: Any = object.__new__(twin)
    instance.__class__ = kind  # raises TypeError if they cannot
    return twin


@cache
def _copier(kind: type[Any]) -> Callable[[Any], Any]:
    """Return a function that copies a record into its twin."""
    lines = [f"copy.{one.name} = record.{one.name}" for one in fields(kind)]
    return _function("copier", ["record"], ["copy = NEW(TWIN)", *lines, "return copy"], kind, {})


def _fast_init(kind: type[Any]) -> Callable[..., None]:
    """Return an `__init__` that does what the standard one does."""
    standard: Callable[..., None] = kind.__init__
    values: dict[str, Any] = {"STANDARD": standard, "MISSING": MISSING}
    arguments, lines = ["self"], list[str]()
    for one in fields(kind):
        if one.default is not MISSING:
            values[f"DEFAULT_{one.name}"] = one.default
            arguments.append(f"{one.name}=DEFAULT_{one.name}")
        elif one.default_factory is not MISSING:
            values[f"MAKE_{one.name}"] = one.default_factory
            arguments.append(f"{one.name}=MISSING")
            lines.append(f"if {one.name} is MISSING: {one.name} = MAKE_{one.name}()")
        else:
            arguments.append(one.name)
    names = ", ".join(one.name for one in fields(kind))
    body = [
        *lines,
        "if self.__class__ is not KIND:",
        f"    return STANDARD(self, {names})",
        "SET_CLASS(self, TWIN)",
        *(f"self.{one.name} = {one.name}" for one in fields(kind)),
        "self.__class__ = KIND",
    ]
    return wraps(standard)(_function("__init__", arguments, body, kind, values))


def _function(
    name: str, arguments: list[str], body: list[str], kind: type[Any], values: dict[str, Any]
) -> Callable[..., Any]:
    """Compile a function over the fields of a class; no text but the names of its fields.

    What it uses besides is in capitals: the arguments of an `__init__` are named as the fields are.
    """
    text = f"def {name}({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in body)
    set_class: Any = object.__dict__["__class__"].__set__
    known = {**values, "KIND": kind, "TWIN": _twin(kind), "NEW": object.__new__}
    made: dict[str, Any] = {}
    exec(
        compile(text, f"<{name} of {kind.__qualname__}>", "exec"),
        known | {"SET_CLASS": set_class},
        made,
    )
    return made[name]
