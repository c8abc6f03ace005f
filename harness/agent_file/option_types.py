"""Types of options: whether a value of an agent file fits the annotation of its parameter.

Data is compared as JSON, strictly, so that `"5"` is no number and `true` no count. An imported
object is compared with the classes that the annotation names. What cannot be compared, such as a
protocol, the class has to check itself.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from .values import AgentFileError, at, sentence

__all__ = ["fitting"]

_NAMES: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "a table",
    list: "a list",
}
_LISTS = (list, tuple, set, frozenset)


def fitting(kind: type, name: str, value: object, made: Any) -> Any:
    """Return a value of the file as an argument that fits its parameter.

    Args:
        kind: The class that takes it.
        name: The parameter.
        value: What the file says.
        made: The same with its objects imported.

    Raises:
        AgentFileError: The annotation does not allow it; the text says what it allows.
    """
    members, is_repeated = _members(kind, name)
    if not members:
        return made
    if not is_repeated:
        return _fitting(kind, members, value, made)
    if not isinstance(value, list):
        raise AgentFileError((), f"expected a list; got {value!r:.80}")
    found: list[Any] = []
    for place, one in enumerate(cast("list[object]", value)):
        with at(place):
            found.append(_fitting(kind, members, one, made[place]))
    return tuple(found)


def _fitting(kind: type, members: Sequence[Any], value: object, made: Any) -> Any:
    if _holds_objects(value):
        if isinstance(value, dict) and not any(map(_may_be, members, [made] * len(members))):
            raise _refusal((), members, made)
        return made
    try:
        data = json.dumps(value, allow_nan=True)
    except (TypeError, ValueError):  # dates, which TOML knows and JSON does not
        return made
    refusals: list[ValidationError] = []
    for member in members:
        adapter = _adapter(kind, member)
        if adapter is None and get_args(member):
            return made
        if adapter is None:  # only an object can be one
            continue
        try:
            found = adapter.validate_json(data, strict=True)
        except ValidationError as error:
            refusals.append(error)
        except PydanticUserError:  # it names what is there for type checkers alone
            return made
        else:
            return found if _holds_records(found) else made
    raise _deepest(refusals, value) or _refusal((), members, value)


def _deepest(refusals: Sequence[ValidationError], value: object) -> AgentFileError | None:
    """Return the error about the innermost part of a value; None if all are about the whole."""
    errors = [error.errors(include_url=False)[0] for error in refusals]
    places = [(_place(error["loc"], value), error) for error in errors]
    place, error = max(places, key=lambda one: len(one[0]), default=((), None))
    if not place or error is None:
        return None
    return AgentFileError(place, f"{sentence(error['msg'])}; got {error['input']!r:.80}")


def _place(found: Sequence[str | int], value: Any) -> tuple[str | int, ...]:
    """Return the keys to a value with an error, without names of types among them."""
    place: list[str | int] = []
    for key in found:
        try:
            value = value[key]
        except (LookupError, TypeError):
            continue
        place.append(key)
    return tuple(place)


def _holds_records(found: object) -> bool:
    """Whether tables became objects of classes."""
    if isinstance(found, Mapping):
        return any(map(_holds_records, cast("Mapping[object, object]", found).values()))
    if isinstance(found, list | tuple):
        return any(map(_holds_records, cast("Sequence[object]", found)))
    return hasattr(found, "__dataclass_fields__")


def _holds_objects(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_objects, cast("list[object]", value)))
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return table.keys() == {"import"} or any(map(_holds_objects, table.values()))
    return False


@cache
def _members(kind: type, name: str) -> tuple[Sequence[Any], bool]:
    """Return the types of which a parameter takes any, and whether it takes several values.

    There are no types if they cannot be found out.
    """
    function = cast("Any", kind.__init__)
    parameter = inspect.signature(function).parameters.get(name)
    if parameter is None or parameter.annotation is parameter.empty:
        return (), False
    hint = parameter.annotation
    if isinstance(hint, str):
        try:
            hint = eval(hint, function.__globals__)
        except (NameError, AttributeError, TypeError, SyntaxError):  # there for type checkers alone
            return (), False
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if Any in members or object in members:
        return (), False
    is_repeated = parameter.kind is parameter.VAR_POSITIONAL
    return [_as_list(one) for one in members], is_repeated


def _as_list(member: Any) -> Any:
    """Return a collection as a sequence, which is what JSON has."""
    if get_origin(member) in (Collection, Iterable):
        return Sequence[get_args(member)]
    return member


@cache
def _adapter(kind: type, member: Any) -> TypeAdapter[Any] | None:
    """Return the adapter that checks data of a type; None if only an object can be one."""
    for config in (None, ConfigDict(arbitrary_types_allowed=True)):
        try:
            adapter = TypeAdapter[Any](member, config=config)
        except (PydanticUserError, SchemaError, TypeError):
            continue
        if not adapter.pydantic_complete:
            names = cast("Any", kind.__init__).__globals__
            adapter.rebuild(raise_errors=False, _types_namespace=names)
        return adapter
    return None


def _may_be(member: Any, made: object) -> bool:
    """Whether an imported object may be of a type."""
    origin = get_origin(member) or member
    if origin is Callable:
        return callable(made)
    try:
        return not isinstance(origin, type) or isinstance(made, origin)
    except TypeError:  # a protocol
        return True


def _refusal(keys: Sequence[str | int], members: Sequence[Any], value: object) -> AgentFileError:
    words = [_words(one) for one in members if one is not NoneType]
    expected = " or ".join(dict.fromkeys(words))
    return AgentFileError(keys, f"expected {expected}; got {value!r:.80}")


def _words(member: Any) -> str:
    """Return the description of a type's values, such as `a list of texts`."""
    origin = get_origin(member) or member
    if origin is Literal:
        return " or ".join(repr(one) for one in get_args(member))
    if origin in _NAMES:
        return _NAMES[origin]
    name = getattr(origin, "__name__", str(origin))
    if name in ("Sequence", "Collection", "Iterable") or origin in _LISTS:
        inner = [one for one in get_args(member) if one is not Ellipsis]
        plain = len(inner) == 1 and _NAMES.get(inner[0], "").split(" ")[-1]
        return f"a list of {plain}s" if plain else "a list"
    if name == "Mapping" or hasattr(origin, "__dataclass_fields__"):
        return "a table"
    if name == "Callable":
        return "a function, as { import = 'module:name' }"
    if name == "PathLike":
        return "a path"
    return f"a {name}, as {{ import = 'module:name' }}"
