"""Schemas of structured output: what a model sees, and how data is checked and stored."""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, NotRequired, Required, Union, cast, get_args, get_origin
from typing import get_type_hints as _get_type_hints
from typing import is_typeddict as _is_typeddict

import typing_extensions
from pydantic import (
    BaseModel,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticSerializationError

from .._internal.json_bounds import bounded, problems_of
from .._internal.records import record
from ..errors import AgentBuildError
from ..models.wire import open_place, resolve
from ..tools.tool import flat_schema

__all__ = [
    "OutputSchema",
    "SchemaMismatch",
    "annotation_of",
    "as_pydantic_knows",
    "members_of",
    "name_of",
    "sources_of",
]

_BAD_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64
_MAX_PROBLEMS = 10
_SECONDS = 1.0
"""For one answer: a schema of a stranger's may make each look at it take twice as long."""
_ACCEPTED = (
    "a pydantic model, a dataclass, a TypedDict, a union of those, or a JSON schema of an object"
)

_Json = dict[str, Any]  # a JSON schema, or a part of one


class SchemaMismatch(ValueError):
    """Data does not fit a schema; the text names each problem."""


@dataclass(frozen=True)
class OutputSchema(ABC):
    """Output schema: one type that an answer can have.

    Attributes:
        source: What the developer gave: a class, or a JSON schema.
        name: Its name, also that of its tool.
        description: What it says of itself.
        parameters: Its JSON schema.
    """

    source: Any
    name: str
    description: str
    parameters: dict[str, JsonValue]

    @abstractmethod
    def parse(self, data: JsonValue) -> Any:
        """Return the typed value of a model's data.

        Raises:
            SchemaMismatch: It does not fit.
        """

    @cached_property
    def open_at(self) -> str | None:
        """Where the schema cannot be enforced by a provider; see `open_place`."""
        return open_place(self.parameters)


@dataclass(frozen=True)
class _ClassSchema(OutputSchema):
    """A pydantic model, a dataclass or a TypedDict."""

    adapter: TypeAdapter[Any]

    def parse(self, data: JsonValue) -> Any:
        try:
            return self.adapter.validate_json(json.dumps(data))
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}"
                for item in error.errors(include_url=False, include_context=False)
            ]
            raise SchemaMismatch(_listed(problems)) from error
        except Exception as error:  # from a validator of the developer's
            raise SchemaMismatch(f"{type(error).__name__}: {error}") from error

    def owns(self, value: Any) -> bool:
        """Whether the value is one of this schema's."""
        if not _is_typeddict(self.source):
            return type(value) is self.source
        try:
            return isinstance(value, dict) and self.load(self.dump(value)) == value
        except (ValidationError, PydanticSerializationError):
            return False

    # Stored by field names, whatever the aliases, and without computed fields: an alias may
    # differ between the two directions, and a model may forbid what it computes itself.
    def dump(self, value: Any) -> JsonValue:
        """Return the JSON data that `load` makes an equal value from."""
        return self.adapter.dump_python(
            value, mode="json", by_alias=False, round_trip=True, warnings=False
        )

    def load(self, data: JsonValue) -> Any:
        """Return the value that was dumped."""
        return self.adapter.validate_json(json.dumps(data), by_alias=False, by_name=True)


@dataclass(frozen=True)
class _JsonSchema(OutputSchema):
    """A JSON schema; its values are JSON data."""

    validator: Any  # of jsonschema, which is imported only for such a schema

    def parse(self, data: JsonValue) -> Any:
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise SchemaMismatch("it holds text that is not valid Unicode") from error
        try:
            problems = problems_of(self.validator, data, seconds=_SECONDS)
        except RecursionError as error:
            raise SchemaMismatch("its schema refers to itself without end") from error
        errors = [
            f"{error.json_path.removeprefix('$.').replace('$', 'the whole')}: {error.message[:300]}"
            for error in problems
        ]
        if errors:
            raise SchemaMismatch(_listed(sorted(errors)))
        return data


def _listed(problems: Sequence[str]) -> str:
    more = len(problems) - _MAX_PROBLEMS
    told = "; ".join(problems[:_MAX_PROBLEMS])
    return f"{told}; and {more} more" if more > 0 else told


# --- from what the developer gave ------------------------------------------------------------


def sources_of(schema: Any) -> list[Any]:
    """Return the members of a schema: of a union, or of a JSON schema's `oneOf` or `anyOf`.

    Raises:
        AgentBuildError: A JSON schema refers to what it does not hold.
    """
    if isinstance(schema, Mapping):
        return _json_members(dict(cast(Mapping[str, Any], schema)))
    if get_origin(schema) is Annotated:
        return sources_of(get_args(schema)[0])
    if get_origin(schema) in (Union, UnionType):
        return [source for one in get_args(schema) for source in sources_of(one)]
    return [schema]


def members_of(schema: Any) -> dict[str, OutputSchema]:
    """Return the members of a schema by name.

    Raises:
        AgentBuildError: It is not a schema of objects, or two members share a name.
    """
    members: dict[str, OutputSchema] = {}
    for source in sources_of(schema):
        is_json = isinstance(source, dict)
        made = _json_schema(cast(_Json, source)) if is_json else _class_schema(source)
        if made.name in members:
            raise AgentBuildError(
                f"response_format: two schemas are named {made.name!r}; rename one of them"
            )
        members[made.name] = made
    return members


def name_of(source: Any) -> str:
    """Return the name of a member, also that of its tool."""
    is_json = isinstance(source, dict)
    title = cast(_Json, source).get("title") if is_json else getattr(source, "__name__", None)
    return _BAD_IN_NAME.sub("_", str(title or "structured_output"))[:_MAX_NAME]


def _class_schema(source: Any) -> OutputSchema:
    if not _is_known_class(source):
        raise AgentBuildError(f"response_format: {source!r} is not {_ACCEPTED}")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(as_pydantic_knows(source))
        whole = adapter.json_schema()
    except (PydanticUserError, NameError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise AgentBuildError(
            f"response_format: {name_of(source)} has no JSON schema: {reason}"
        ) from error
    parameters = _written_out(whole)
    if parameters.get("type") != "object":
        raise AgentBuildError(
            f"response_format: {name_of(source)} is not an object; put it into a field"
        )
    description = str(parameters.pop("description", ""))
    return _ClassSchema(source, name_of(source), description, parameters, adapter)


def _is_known_class(source: Any) -> bool:
    if not isinstance(source, type):
        return False
    known: type[Any] = source
    return issubclass(known, BaseModel) or is_dataclass(known) or _is_typeddict(known)


def _written_out(schema: _Json) -> _Json:
    try:
        return cast(_Json, flat_schema(schema))
    except RecursionError:  # a type that holds itself cannot be written out in place
        return _resolved(schema, schema)


def as_pydantic_knows(source: Any) -> Any:
    """Return the class as pydantic takes it: it knows `typing.TypedDict` only from 3.12 on."""
    if sys.version_info >= (3, 12) or type(source).__module__ != "typing":
        return source
    fields: dict[str, Any] = {}
    for key, hint in _get_type_hints(source, include_extras=True).items():
        marked = get_origin(hint) in (Required, NotRequired)
        optional = not marked and key in source.__optional_keys__
        fields[key] = NotRequired[hint] if optional else hint
    made = cast(Any, typing_extensions).TypedDict(source.__name__, fields)
    made.__doc__, made.__module__ = source.__doc__, source.__module__
    if hasattr(source, "__pydantic_config__"):
        made.__pydantic_config__ = source.__pydantic_config__
    return made


def _json_members(schema: _Json) -> list[_Json]:
    variants = schema.get("oneOf") or schema.get("anyOf")
    try:
        if not isinstance(variants, list) or "properties" in schema:
            members = [_resolved(schema, schema)]
        else:
            members = _variants(schema, cast(list[Any], variants))
        for member in members:
            for ref in _refs(member):
                resolve(member, ref)
    except LookupError as error:
        raise AgentBuildError(f"response_format: {error}") from error
    return members


def _variants(schema: _Json, variants: Sequence[Any]) -> list[_Json]:
    members: list[_Json] = []
    for number, variant in enumerate(variants, start=1):
        if not isinstance(variant, dict):
            raise AgentBuildError(f"response_format: {variant!r} is not {_ACCEPTED}")
        member = _resolved(cast(_Json, variant), schema)
        shared = {
            key: {**schema[key], **member.get(key, {})}
            for key in ("$defs", "definitions")
            if key in schema
        }
        title = member.get("title") or f"{schema.get('title', 'structured_output')}_{number}"
        members.append({**member, **shared, "title": title})
    return members


def _resolved(schema: _Json, root: _Json) -> _Json:
    """Return the schema without a reference at its top, titled by what it referred to."""
    ref = schema.get("$ref")
    if not isinstance(ref, str):
        return schema
    target = {"title": ref.rsplit("/", 1)[-1], **resolve(root, ref)}
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in cast(_Json, node).items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _refs(value)
    elif isinstance(node, list):
        for item in cast(list[Any], node):
            yield from _refs(item)


def _json_schema(source: _Json) -> OutputSchema:
    from jsonschema import SchemaError, validators  # slow to import; seldom needed

    if source.get("type") != "object" and "properties" not in source:
        raise AgentBuildError(f"response_format: {json.dumps(source)[:200]} is not {_ACCEPTED}")
    kind = validators.validator_for(source, default=validators.Draft202012Validator)
    try:
        kind.check_schema(source)
    except SchemaError as error:
        raise AgentBuildError(
            f"response_format: not a JSON schema, at {error.json_path}: {error.message}"
        ) from error
    dropped = ("title", "description", "$schema")
    parameters = {key: value for key, value in source.items() if key not in dropped}
    parameters.setdefault("type", "object")
    return _JsonSchema(
        source,
        name_of(source),
        str(source.get("description", "")),
        parameters,
        bounded(source, kind),
    )


# --- in the journal ------------------------------------------------------------------------------


def annotation_of(members: Mapping[str, OutputSchema]) -> Any:
    """Return a type whose JSON form gives back equal values of the same class.

    A value of a union is stored with its schema's name: from the fields alone, members that
    overlap could not be distinguished. Stored data that fits no member reads as None: it is an
    answer from when another format held, in an earlier turn of the thread.
    """
    classes = {name: one for name, one in members.items() if isinstance(one, _ClassSchema)}
    if not classes:
        return JsonValue
    store = _Store(classes)
    stored = PlainSerializer(store.dump, when_used="json")
    one: Any = Annotated[Any, PlainValidator(store.load), stored]
    return one | None


@record
class _Store:
    members: Mapping[str, _ClassSchema]

    def _owner(self, value: Any) -> str | None:
        return next((name for name, one in self.members.items() if one.owns(value)), None)

    def dump(self, value: Any) -> JsonValue:
        if len(self.members) == 1:
            return next(iter(self.members.values())).dump(value)
        name = self._owner(value)
        if name is None:
            names = ", ".join(self.members)
            raise ValueError(f"structured_response is a {type(value).__name__}, none of {names}")
        return {"schema": name, "value": self.members[name].dump(value)}

    def load(self, data: Any, info: ValidationInfo) -> Any:
        if info.mode == "python":
            return data if self._owner(data) is not None else self._loaded(data)
        try:
            return self._loaded(data)
        except ValueError:
            return None

    def _loaded(self, data: Any) -> Any:
        if len(self.members) == 1:
            return next(iter(self.members.values())).load(data)
        match data:
            case {"schema": str(name), "value": value} if name in self.members:
                return self.members[name].load(cast(JsonValue, value))
            case _:
                names = ", ".join(self.members)
                raise ValueError(f'expected {{"schema": …, "value": …}}, the schema one of {names}')
