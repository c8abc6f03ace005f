"""Schemas of tools for models, created from signatures and docstrings.

References in JSON schemas are replaced by their definitions, and arguments are checked against the
schemas.

Descriptions of parameters come from a tool's docstring, in google, numpy or reST style. All other
text stays verbatim, even after a section: the whole text helps the model. (The common parsers drop
such text.)
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, cast

from pydantic import JsonValue, ValidationError

from .._internal.json_bounds import bounded, problems_of
from .._internal.records import record
from ..errors import AgentBuildError

__all__ = [
    "Docstring",
    "ToolSpec",
    "check_schema",
    "expected",
    "flat_schema",
    "is_provider_tool",
    "model_problems",
    "read_docstring",
    "refusal",
    "schema_problems",
    "signature",
    "without_nulls",
]


_DEFINITIONS = ("$defs", "definitions")
_DROPPED = ("title", "discriminator", *_DEFINITIONS)
_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_DATA = ("default", "const", "enum", "examples")

_MAX_PROBLEMS = 10
_PROBLEM_CHARS = 300
_SIGNATURE_CHARS = 600
_SIGNATURE_DEPTH = 3


def flat_schema(schema: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a JSON schema without `$ref`, `$defs` and generated titles.

    Some clients drop or break references, so each is replaced by its definition. If a type contains
    itself, only the `type` of the inner one is given.
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
    """Return the target of a reference inside the schema, or None if it does not exist."""
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
        AgentBuildError: It is not valid, does not describe an object, or has an external reference.
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
        # Other references would be fetched from the network at the first call.
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
    """Yield the problems of arguments, each with its path."""
    errors = problems_of(bounded(schema), dict(args))
    errors.sort(key=lambda error: list(map(str, error.path)))
    for error in errors[:_MAX_PROBLEMS]:
        place = ".".join(map(str, error.absolute_path)) or "arguments"
        yield f"{place}: {_short(error.message)}"


def model_problems(error: ValidationError) -> str:
    """Return the first problems of arguments, as text."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{_short('.'.join(map(str, one['loc']))) or 'arguments'}: {_short(_said(one['msg']))}"
        for one in found[:_MAX_PROBLEMS]
    ]
    more = [f"and {len(found) - len(told):,} more"] if len(found) > len(told) else []
    return "; ".join([*told, *more])


def _said(problem: str) -> str:
    """Return pydantic's message without the empty word, which only means "not given"."""
    return problem.replace("be '', ", "be ")


def refusal(error: ValidationError, schema: Mapping[str, Any]) -> str:
    """Return the problems of arguments; if any are missing or unknown, add the expected ones."""
    problems = model_problems(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if any(one["type"] in ("missing", "extra_forbidden") for one in found):
        return f"{problems}. {expected(schema)}"
    return f"{problems}."


def without_nulls(schema: Mapping[str, Any], args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return arguments without the optional ones that are null although the schema refuses null.

    Many models and clients send null for an argument that they mean to leave out. Where the schema
    accepts null, it is a value of its own.
    """
    properties = cast(Mapping[str, object], schema.get("properties") or {})
    required = cast(Sequence[str], schema.get("required") or ())
    optional = properties.keys() - {*required}
    places = [one.absolute_path for one in problems_of(bounded(schema), args)]
    refused = optional & {place[0] for place in places if place}
    return {key: one for key, one in args.items() if one is not None or key not in refused}


def expected(schema: Mapping[str, Any]) -> str:
    """Return a sentence that lists the arguments of a schema."""
    return f"Expected arguments: {signature(schema)}."


def signature(schema: Mapping[str, Any]) -> str:
    """Return the arguments of a schema on one line; optional ones have a question mark.

    For example `goal: string, files?: {name?: string}[], mode?: fast | slow`.
    """
    return _short(_fields(schema, _SIGNATURE_DEPTH), _SIGNATURE_CHARS) or "none"


def _fields(schema: Mapping[str, Any], depth: int) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return ""
    needed = cast(Sequence[Any], required) if isinstance(required, list) else ()
    return ", ".join(
        f"{name}{'' if name in needed else '?'}: {_kind(one, depth)}"
        for name, one in cast(Mapping[str, Any], properties).items()
    )


def _kind(schema: Any, depth: int) -> str:
    """Return the type of a value, or the allowed words."""
    if not isinstance(schema, Mapping):
        return "any"
    schema = cast(Mapping[str, Any], schema)
    match schema:
        case {"enum": [*words]}:
            return " | ".join(str(one) for one in words if one != "")
        case {"type": "array", "items": items} if depth:
            return f"{_kind(items, depth - 1)}[]"
        case {"type": "object", "properties": {}} if depth:
            return f"{{{_fields(schema, depth - 1)}}}"
        case {"type": str(kind)}:
            return kind
        case {"type": [*kinds]} | {"anyOf": [*kinds]}:
            return " | ".join(one if isinstance(one, str) else _kind(one, depth) for one in kinds)
        case _:
            return "any"


def _short(text: str, limit: int = _PROBLEM_CHARS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


_GOOGLE_HEAD = re.compile(
    r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Attributes):\s*"
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\(.*?\))?\s*:(?:\s+|$)(.*)")
_NUMPY_HEAD = re.compile(r"(?:Other )?Parameters\s*|Attributes\s*")
_NUMPY_RULE = re.compile(r"-{3,}\s*")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?()$")
_REST_HEAD = re.compile(r":(?:param|parameter|arg|argument|key|keyword|type)\s[^:]*:.*")
_REST_ENTRY = re.compile(r":(?!type)\w+\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")


@record
class Docstring:
    """A parsed docstring.

    Attributes:
        text: The text without the parameters.
        parameters: Description of each parameter, on one line.
    """

    text: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> Docstring:
    """Parse a docstring from `inspect.getdoc`."""
    lines = (docstring or "").splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    place = 0
    while place < len(lines):
        for style in _STYLES:
            end = style.end(lines, place)
            if end > place:
                parameters.update(_entries(lines[place + style.head : end], style.entry))
                place = end
                break
        else:
            kept.append(lines[place])
            place += 1
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters)


def _entries(block: Sequence[str], entry: re.Pattern[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in textwrap.dedent("\n".join(block)).splitlines():
        match = None if line[:1].isspace() else entry.match(line)
        if match is None:
            current.append(line.strip())
            continue
        current = [match[2].strip()]
        for name in match[1].split(","):
            found[name.strip(" *")] = current
    joined = {name: " ".join(filter(None, lines)) for name, lines in found.items()}
    return {name: text for name, text in joined.items() if text}


def _google_end(lines: Sequence[str], place: int) -> int:
    if not _GOOGLE_HEAD.fullmatch(lines[place]):
        return place
    end = place + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    return end if any(line.strip() for line in lines[place + 1 : end]) else place


def _numpy_end(lines: Sequence[str], place: int) -> int:
    if not (_NUMPY_HEAD.fullmatch(lines[place]) and _ruled(lines, place)):
        return place
    end = place + 2
    while end < len(lines) and not _ruled(lines, end):
        line = lines[end]
        prose = bool(line.strip()) and not line[0].isspace() and not _NUMPY_ENTRY.match(line)
        if prose and not lines[end - 1].strip():
            break
        end += 1
    return end


def _ruled(lines: Sequence[str], place: int) -> bool:
    return place + 1 < len(lines) and _NUMPY_RULE.fullmatch(lines[place + 1]) is not None


def _rest_end(lines: Sequence[str], place: int) -> int:
    if not _REST_HEAD.fullmatch(lines[place]):
        return place
    end = place + 1
    while end < len(lines) and lines[end].strip() and not lines[end].startswith(":"):
        end += 1
    return end


class _Style(NamedTuple):
    """Docstring style: how its sections are found and read.

    Attributes:
        head: Number of lines of a section's headline.
        end: Returns the end of the section at a position; the same position if there is none.
        entry: Matches the first line of an entry, with names and text.
    """

    head: int
    end: Callable[[Sequence[str], int], int]
    entry: re.Pattern[str]


_STYLES = (
    _Style(1, _google_end, _GOOGLE_ENTRY),
    _Style(2, _numpy_end, _NUMPY_ENTRY),
    _Style(0, _rest_end, _REST_ENTRY),
)


@record
class ToolSpec:
    """Definition of a tool for a model. `cache` sets a prompt-cache breakpoint after it."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    cache: bool = False


_CLIENT_TYPES = ("custom", "function")


def is_provider_tool(value: object) -> TypeGuard[Mapping[str, JsonValue]]:
    """Return whether a value is a tool that the model's provider runs.

    Such a tool is a mapping in the provider's own form, such as `{"type": "web_search_20250305",
    "name": "web_search"}`. It is sent with each request and never run here.

    Raises:
        AgentBuildError: The value is a mapping, but not such a tool.
    """
    if not isinstance(value, Mapping):
        return False
    kind = cast(Mapping[str, object], value).get("type")
    if not isinstance(kind, str) or not kind or kind in _CLIENT_TYPES:
        raise AgentBuildError(
            f"a tool given as a mapping runs at the model's provider and needs the provider's "
            f"type for it, such as 'web_search_20250305'; got {value!r}. For a tool that runs "
            "here use Tool.from_schema."
        )
    return True
