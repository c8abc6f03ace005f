"""JSON schemas of tools: written out flat, and arguments checked against them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import JsonValue, ValidationError

from .._internal.json_bounds import bounded, problems_of
from ..errors import AgentBuildError

__all__ = ["check_schema", "flat_schema", "model_problems", "schema_problems"]

_DEFINITIONS = ("$defs", "definitions")
_DROPPED = ("title", "discriminator", *_DEFINITIONS)
_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_DATA = ("default", "const", "enum", "examples")

_MAX_PROBLEMS = 10
_PROBLEM_CHARS = 300


def flat_schema(schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a JSON schema without `$ref`, `$defs` and generated titles.

    Several clients drop or mangle references, so definitions are written out in place. Where a
    type contains itself, the inner one is left open: only its `type` is stated.
    """

    def flatten(node: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [flatten(item, inside) for item in cast(list[Any], node)]
        if not isinstance(node, dict):
            return node
        node = cast(dict[str, Any], node)
        ref = node.get("$ref")
        if isinstance(ref, str):
            target = _target(schema, ref) or {}
            rest = {key: value for key, value in node.items() if key != "$ref"}
            if ref in inside:
                return {**_open(target), **flatten(rest, inside)}
            return flatten({**target, **rest}, (*inside, ref))
        return {
            key: _keyword(key, value, inside) for key, value in node.items() if key not in _DROPPED
        }

    def _keyword(key: str, value: Any, inside: tuple[str, ...]) -> Any:
        if key in _DATA:
            return value
        if key in _BY_NAME and isinstance(value, dict):
            named = cast(dict[str, Any], value)
            return {name: flatten(one, inside) for name, one in named.items()}
        return flatten(value, inside)

    return flatten(dict(schema), ("#",))


def _target(schema: Mapping[str, Any], ref: str) -> dict[str, Any] | None:
    """Return what a reference inside the schema points to, if it is there."""
    node: Any = schema
    for part in filter(None, ref.removeprefix("#").split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or name not in node:
            return None
        node = cast(Mapping[str, Any], node)[name]
    return cast(dict[str, Any], node) if isinstance(node, dict) else None


def _open(target: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": target["type"]} if "type" in target else {}


def check_schema(schema: Mapping[str, JsonValue], owner: str) -> None:
    """Check that a schema can describe a tool's arguments.

    Raises:
        AgentBuildError: It is not valid, not of an object, or refers to something outside.
    """
    # Slow to import, and only tools with a hand-written schema need it.
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    if schema.get("type") != "object":
        raise AgentBuildError(
            f'{owner}: the JSON schema of the arguments must have "type": "object"; got '
            f"{schema.get('type')!r}"
        )
    try:
        validator_for(schema).check_schema(dict(schema))
    except SchemaError as error:
        raise AgentBuildError(f"{owner}: not a valid JSON schema: {error.message}") from error
    for ref in _references(schema):
        # Anything else would be fetched from the network at the first call.
        if not (ref == "#" or (ref.startswith("#/") and _target(schema, ref) is not None)):
            raise AgentBuildError(
                f"{owner}: the JSON schema refers to {ref!r}, which is not in it. Write the "
                "definition into the schema, under $defs."
            )


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in cast(dict[str, Any], node).items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                yield value
            elif key not in _DATA:
                yield from _references(value)
    elif isinstance(node, list):
        for item in cast(list[Any], node):
            yield from _references(item)


def schema_problems(
    schema: Mapping[str, JsonValue], args: Mapping[str, JsonValue]
) -> Iterator[str]:
    """Yield what is wrong with arguments, each with its place."""
    errors = problems_of(bounded(schema), dict(args))
    errors.sort(key=lambda error: list(map(str, error.path)))
    for error in errors[:_MAX_PROBLEMS]:
        place = ".".join(map(str, error.absolute_path)) or "arguments"
        yield f"{place}: {_short(error.message)}"


def model_problems(error: ValidationError) -> str:
    """Return what is wrong with the arguments of a model; of many problems the first ones."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{_short('.'.join(map(str, one['loc']))) or 'arguments'}: {_short(one['msg'])}"
        for one in found[:_MAX_PROBLEMS]
    ]
    more = [f"and {len(found) - len(told):,} more"] if len(found) > len(told) else []
    return "; ".join([*told, *more])


def _short(text: str) -> str:
    return text if len(text) <= _PROBLEM_CHARS else f"{text[:_PROBLEM_CHARS]}…"
