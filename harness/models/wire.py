"""Wire formats: helpers that all model adapters share, for text, schemas and HTTP clients.

Text is made storable and sendable, and the arguments of calls are read as models write them.

A schema is sent natively if the provider can enforce it. If an API accepts only some schemas, the
rest is described in words in the tool's description. Calls are checked against the whole schema
where they run.

Each model has one HTTP client per event loop, because connections belong to a loop.
"""

from __future__ import annotations

import gc
import json
import math
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from pydantic import JsonValue

__all__ = [
    "CONTINUE",
    "OPENING",
    "LoopClients",
    "clean_text",
    "open_place",
    "parse_arguments",
    "resolve",
    "sendable",
    "taken_and_told",
    "unsendable",
]


OPENING = "(The conversation starts with what was already done.)"
"""Said for the user where a transcript begins with an answer: vendors want the user first."""

CONTINUE = "Continue."
"""Said for the user where a transcript ends with an answer."""

_ILLEGAL_HEADER = "a header, such as the API key's, has characters that HTTP does not allow"


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced: they cannot be stored or sent as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


def parse_arguments(raw: str) -> dict[str, JsonValue] | None:
    """Return the arguments a call's raw JSON holds, or None when it is not a JSON object.

    No text at all means no arguments.
    """
    if not raw.strip():
        return {}
    try:
        args = json.loads(raw, parse_constant=_no_constant)
        json.dumps(args, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, JsonValue], args) if isinstance(args, dict) else None


def sendable(value: Any) -> Any:
    """Return JSON data as it can be written: whole characters, and words for odd numbers."""
    match value:
        case str():
            return clean_text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            pairs = cast(dict[str, Any], value)
            return {clean_text(key): sendable(one) for key, one in pairs.items()}
        case list():
            return [sendable(one) for one in cast(list[Any], value)]
        case _:
            return value


def unsendable(error: BaseException | None) -> str | None:
    """Return why a request could not even be sent, where an HTTP library's error is of that kind.

    An invalid address, or a key with a line end, is no network error, so a retry does not help. The
    errors are recognised by name, because each SDK has an HTTP library of its own.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        name, text = type(error).__name__, str(error)
        illegal = name == "LocalProtocolError" and "header" in text.lower()
        if illegal or name in ("UnsupportedProtocol", "InvalidURL"):
            # Its own words would show the key.
            return _ILLEGAL_HEADER if illegal else text
        error = error.__cause__ or error.__context__
    return None


_Json = dict[str, Any]  # a JSON schema, or a part of one

_DEEPEST = 100
"""References that may lead on to each other; what goes further counts as open."""


def resolve(root: Mapping[str, Any], ref: str) -> dict[str, Any]:
    """Return what a reference inside a schema means.

    Raises:
        LookupError: It leads nowhere, or out of the schema.
    """
    head, *path = ref.split("/")
    node: Any = root if head == "#" else None
    for part in path:
        key = part.replace("~1", "/").replace("~0", "~")
        node = cast(_Json, node).get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        raise LookupError(f"the reference {ref!r} leads nowhere; put what it means into $defs")
    return cast(_Json, node)


def open_place(schema: Mapping[str, Any]) -> str | None:
    """Return the first place at which a provider cannot hold a model to a JSON schema, or None.

    Native output needs every part typed and every object closed: an object with free keys, a
    value of any type, a tuple and a type that holds itself cannot be had that way.
    """
    return _open(dict(schema), dict(schema), "$", (), set())


def _open(node: Any, root: _Json, path: str, seen: tuple[str, ...], closed: set[str]) -> str | None:
    """Return the first open place; `closed` are references below which there is none."""
    if not isinstance(node, dict):
        return path
    node = cast(_Json, node)
    ref = node.get("$ref")
    if isinstance(ref, str):
        return None if ref in closed else _open_ref(ref, root, path, seen, closed)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in node:
            return _first(_open(one, root, f"{path}.{key}", seen, closed) for one in node[key])
    if "const" in node or "enum" in node:
        return None
    match node.get("type"):
        case "object":
            return _open_object(node, root, path, seen, closed)
        case "array":
            return _open(node.get("items"), root, f"{path}.items", seen, closed)
        case "string" | "integer" | "number" | "boolean" | "null":
            return None
        case _:
            return path


def _open_ref(
    ref: str, root: _Json, path: str, seen: tuple[str, ...], closed: set[str]
) -> str | None:
    if ref in seen or len(seen) >= _DEEPEST:
        return path
    place = _open(resolve(root, ref), root, path, (*seen, ref), closed)
    if place is None:
        closed.add(ref)
    return place


def _open_object(
    node: _Json, root: _Json, path: str, seen: tuple[str, ...], closed: set[str]
) -> str | None:
    free = node.get("additionalProperties", False) is not False or "patternProperties" in node
    if free or "properties" not in node:
        return path
    fields = cast(_Json, node["properties"])
    return _first(
        _open(value, root, f"{path}.{key}", seen, closed) for key, value in fields.items()
    )


def _first(places: Iterable[str | None]) -> str | None:
    return next((place for place in places if place is not None), None)


_COMBINED = ("allOf", "anyOf", "oneOf")
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_Schema = dict[str, JsonValue]


def taken_and_told(schema: Mapping[str, JsonValue]) -> tuple[_Schema, str]:
    """Return what the Messages API takes of a tool's schema, and what it does not, in words.

    It refuses `allOf`, `anyOf` and `oneOf` at the top, and properties there with other characters
    than letters, digits, `_`, `.` and `-`, or more than 64; one such tool spoils every request.

    Args:
        schema: The schema of an object.
    """
    taken = {key: value for key, value in schema.items() if key not in _COMBINED}
    told: _Schema = {key: schema[key] for key in _COMBINED if key in schema}
    own = cast(_Schema, schema.get("properties") or {})
    properties = {**_of_branches(told), **own}
    odd = {name: one for name, one in properties.items() if not _KEY.fullmatch(name)}
    if not told and not odd:
        return taken, ""
    taken["properties"] = {name: one for name, one in properties.items() if name not in odd}
    if odd:
        required = cast(list[str], schema.get("required") or [])
        taken["required"] = [name for name in required if name not in odd]
        told |= {
            "properties": {name: one for name, one in own.items() if name in odd},
            "required": [name for name in required if name in odd],
        }
        taken.pop("additionalProperties", None)  # it would forbid them
    rest = json.dumps(told, ensure_ascii=False)
    return taken, f"The arguments must also fit this JSON schema: {rest}"


def _of_branches(combined: Mapping[str, Any]) -> _Schema:
    """Return the properties that branches name; where they differ, any of what they say."""
    found: dict[str, list[JsonValue]] = {}
    for name, one in _named(combined):
        known = found.setdefault(name, [])
        if one not in known:
            known.append(one)
    return {name: ones[0] if len(ones) == 1 else {"anyOf": ones} for name, ones in found.items()}


def _named(combined: Mapping[str, Any]) -> Iterator[tuple[str, JsonValue]]:
    for branches in combined.values():
        for branch in branches:
            if isinstance(branch, dict):
                yield from cast("dict[str, Any]", branch).get("properties", {}).items()


_Client = TypeVar("_Client")

_MANY_MODULES = 100
"""So many new modules are an SDK."""


@dataclass(slots=True)
class _OfLoop(Generic[_Client]):
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    made: WeakKeyDictionary[object, tuple[Hashable, _Client]] = field(
        default_factory=WeakKeyDictionary[object, "tuple[Hashable, _Client]"]
    )


class LoopClients(Generic[_Client]):
    """The clients of all models of one kind, by event loop.

    Args:
        name: Of the kind, for debugging.
    """

    def __init__(self, name: str) -> None:
        self._loops: RunVar[_OfLoop[_Client]] = RunVar(name)

    async def get(
        self, model: object, credentials: Hashable, make: Callable[[], _Client]
    ) -> _Client:
        """Return this loop's client of a model.

        Args:
            model: Whose client it is.
            credentials: What it is made for; with others, a new one is made.
            make: Makes one. It is called in a thread, as it may import an SDK.
        """
        loop = self._loops.get(None)
        if loop is None:
            loop = _OfLoop[_Client]()
            self._loops.set(loop)
        async with loop.lock:
            known = loop.made.get(model)
            if known is None or known[0] != credentials:
                client = await anyio.to_thread.run_sync(_without_collections, make)
                known = loop.made[model] = credentials, client
        return known[1]

    def pop(self, model: object) -> _Client | None:
        """Forget and return this loop's client of a model, if there is one."""
        loop = self._loops.get(None)
        known = loop.made.pop(model, None) if loop is not None else None
        return None if known is None else known[1]


def _without_collections(make: Callable[[], _Client]) -> _Client:
    """Call it while no garbage is collected.

    An SDK makes some hundred thousand objects that stay. Each collection among them would hold up
    all other threads for a tenth of a second, and so would the next one after them.
    """
    collects, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        return make()
    finally:
        if collects:
            if len(sys.modules) > before + _MANY_MODULES:
                gc.freeze()
            gc.enable()
