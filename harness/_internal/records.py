"""Records: frozen, slotted dataclasses that are cheap to create and copy; and an identity cache.

A frozen dataclass assigns each field with `object.__setattr__`, which is much slower than a plain
assignment. A round of the loop creates about fifty records, and the difference was a sixth of its
time (`python -m benchmarks loop`). So a record is created as an instance of a mutable twin class
with the same slots. When all fields are set, its class is changed to the frozen one.

The standard decorator also compiles six functions per class. A server imports two hundred of these
classes before its first answer, which took a tenth of its start (`python -m benchmarks startup`).
Here only `__init__` is compiled; the others are closures over the names of the fields.

The identity cache stores the result of a computation by the identity of its argument, a tuple. An
agent passes the same tuple of tools to its model with every call, and hashing the tools would cost
more than the computation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, replace
from functools import cache, partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Generic, TypeVar, cast, dataclass_transform

__all__ = ["IdentityCache", "changed", "record"]


T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Return the class as a frozen, slotted dataclass; like `dataclass(frozen=True, slots=True)`.

    The class must have no bases. All fields must be positional arguments of `__init__`. Subclasses
    work the same way as with the standard decorator.
    """
    cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise `dataclass` creates one
    kind = cast(Any, dataclass(init=False, repr=False, eq=False, slots=True)(cls))
    kind.__dataclass_params__.frozen = True  # subclasses must be frozen, too
    every = fields(kind)
    own = vars(cls)
    if "__repr__" not in own:
        kind.__repr__ = _repr
    if "__setstate__" not in own:
        kind.__setstate__ = _set_state
    if "__eq__" not in own:
        kind.__eq__ = _eq([one.name for one in every if one.compare])
    if own.get("__hash__") is None:
        kind.__hash__ = _hash(
            [one.name for one in every if (one.compare if one.hash is None else one.hash)]
        )
    _freeze(kind, frozenset(one.name for one in every))
    kind.__init__ = _init(kind, every)
    return kind


def changed(record: T, /, **changes: Any) -> T:
    """Return a copy of a frozen dataclass without `__post_init__`, with some fields changed.

    Raises:
        TypeError: A field does not exist.
    """
    return _copier(type(record), *changes)(record, **changes)


def _freeze(kind: Any, names: frozenset[str]) -> None:
    parent = partial(cast(Any, super), kind)

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        parent(self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        parent(self).__delattr__(name)

    kind.__setattr__, kind.__delattr__ = __setattr__, __delattr__


def _eq(names: list[str]) -> Callable[[Any, object], bool]:
    values = _values_of(names)

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(names: list[str]) -> Callable[[Any], int]:
    values = _values_of(names)
    return lambda self: hash(values(self))


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns these fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _set_state(self: Any, state: tuple[Mapping[str, Any] | None, ...]) -> None:
    """Set a copy's fields from the result of `object.__getstate__`: attributes, and slots."""
    for values in state:
        for name, value in (values or {}).items():
            object.__setattr__(self, name, value)


class _Made:
    """Placeholder in signatures for the value of a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Made()


def _init(kind: type[Any], every: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Return an `__init__` that works the same way as the standard one, but faster."""
    names = [one.name for one in every]

    def fill(self: Any, values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    values: dict[str, Any] = {"MADE": _MADE, "FILL": fill}
    arguments, lines = ["self"], list[str]()
    for one in every:
        if one.default is not MISSING:
            values[f"DEFAULT_{one.name}"] = one.default
            arguments.append(f"{one.name}=DEFAULT_{one.name}")
        elif one.default_factory is not MISSING:
            values[f"MAKE_{one.name}"] = one.default_factory
            arguments.append(f"{one.name}=MADE")
            lines.append(f"if {one.name} is MADE: {one.name} = MAKE_{one.name}()")
        else:
            arguments.append(one.name)
    body = [
        *lines,
        "if self.__class__ is KIND:",
        "    SET_CLASS(self, TWIN)",
        *(f"    self.{name} = {name}" for name in names),
        "    self.__class__ = KIND",
        "else:",
        f"    FILL(self, ({''.join(f'{name}, ' for name in names)}))",
    ]
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    made = _function("__init__", arguments, body, kind, values)
    made.__annotations__ = {one.name: one.type for one in every} | {"return": None}
    return made


def _twin(kind: type[Any]) -> type[Any]:
    """Return a mutable class whose instances can become instances of `kind`."""
    twin = type(kind.__name__, (), {"__slots__": tuple(one.name for one in fields(kind))})
    instance: Any = object.__new__(twin)
    instance.__class__ = kind  # raises TypeError if it is not possible
    return twin


@cache
def _copier(kind: type[Any], *names: str) -> Callable[..., Any]:
    """Return a function that copies a record and takes new values for the named fields."""
    known = [one.name for one in fields(kind)]
    for name in names:
        if name not in known:
            raise TypeError(f"{kind.__name__} has no field {name!r}")
    body = [
        "COPY = NEW(TWIN)",
        *(f"COPY.{one} = {one if one in names else f'RECORD.{one}'}" for one in known),
        "COPY.__class__ = KIND",
        "return COPY",
    ]
    arguments = ["RECORD", "/", *(["*", *names] if names else ())]
    try:
        return _function("copier", arguments, body, kind, {})
    except TypeError:  # the class has more than slots
        return replace


def _function(
    name: str, arguments: list[str], body: list[str], kind: type[Any], values: dict[str, Any]
) -> Callable[..., Any]:
    """Compile a function over the fields of a class; its source contains only field names.

    Other names in it are in capitals, because arguments have the names of the fields.
    """
    set_class: Any = object.__dict__["__class__"].__set__
    known = {"KIND": kind, "TWIN": _twin(kind), "NEW": object.__new__, "SET_CLASS": set_class}
    known |= values
    lines = [
        f"def MAKE({', '.join(known)}):",
        f"  def {name}({', '.join(arguments)}):",
        *(f"    {line}" for line in body),
        f"  return {name}",
    ]
    made: dict[str, Any] = {}
    module = sys.modules.get(kind.__module__)
    # With the globals of the class's module, so that names in annotations can be resolved.
    exec(
        compile("\n".join(lines), f"<{name} of {kind.__qualname__}>", "exec"),
        {} if module is None else vars(module),
        made,
    )
    function = made["MAKE"](**known)
    function.__qualname__ = f"{kind.__qualname__}.{name}"
    return function


KeyT = TypeVar("KeyT", bound=tuple[Any, ...])
ValueT = TypeVar("ValueT")


class IdentityCache(Generic[KeyT, ValueT]):
    """Calls a function once per tuple.

    Args:
        compute: The function; its results are shared, so they must not be changed.
        size: Maximum number of tuples; when it is reached, the cache is cleared.
    """

    def __init__(self, compute: Callable[[KeyT], ValueT], size: int = 64) -> None:
        self._compute = compute
        self._size = size
        # The tuple is stored with its value: while it lives, no other object can have its id.
        self._known: dict[int, tuple[KeyT, ValueT]] = {}

    def __call__(self, key: KeyT) -> ValueT:
        """Return the function's result for a tuple."""
        known = self._known.get(id(key))
        if known is None:
            if len(self._known) >= self._size:
                self._known.clear()
            known = self._known[id(key)] = (key, self._compute(key))
        return known[1]
