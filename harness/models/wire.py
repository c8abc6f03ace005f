"""Wire formats: helpers that all model adapters share, for text, schemas and HTTP clients.

Text is cleaned so that it can be stored and sent, and the arguments of calls are parsed.

An output schema is sent natively if the provider can enforce it. If an API accepts only some
schemas for tools, the rest is written into the tool's description. Calls are checked against the
whole schema when they run.

Each model has one HTTP client per event loop, because connections belong to a loop.

A read timeout ends a call whose server is silent. A server that sends only pings or comments keeps
the connection alive without an answer; `bounded` limits how long.
"""

from __future__ import annotations

import gc
import json
import math
import re
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from pydantic import JsonValue

from .._internal import clean_text
from .._internal.json_bounds import no_constant

__all__ = [
    "CONTINUE",
    "NOTHING_ELSE",
    "OPENING",
    "LoopClients",
    "bounded",
    "nothing_else",
    "open_place",
    "parse_arguments",
    "resolve",
    "sendable",
    "split_schema",
    "unsendable",
]


OPENING = "(The conversation starts with what was already done.)"
"""User message before a transcript that begins with an answer: vendors require the user first."""

CONTINUE = "Continue."
"""User message after a transcript that ends with an answer."""

NOTHING_ELSE = 6
"""How long a server may send nothing but pings and comments, in multiples of the timeout."""

_ILLEGAL_HEADER = "a header, such as the API key's, has characters that HTTP does not allow"


def parse_arguments(raw: str) -> dict[str, JsonValue] | None:
    """Parse the raw JSON arguments of a call; return None if they are not a JSON object.

    Empty text means no arguments.
    """
    if not raw.strip():
        return {}
    try:
        args = json.loads(raw, parse_constant=no_constant)
        json.dumps(args, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, JsonValue], args) if isinstance(args, dict) else None


def sendable(value: Any) -> Any:
    """Make JSON data serializable: replace lone surrogates, and write NaN and infinity as text."""
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
    """Return why a request could not be sent at all, or None for other errors of an HTTP library.

    An invalid address, or a key with a line break, is not a network error, so a retry does not
    help. Errors are recognised by name, because each SDK has its own HTTP library.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        name, text = type(error).__name__, str(error)
        illegal = name == "LocalProtocolError" and "header" in text.lower()
        if illegal or name in ("UnsupportedProtocol", "InvalidURL"):
            # The library's message would show the key.
            return _ILLEGAL_HEADER if illegal else text
        error = error.__cause__ or error.__context__
    return None


_Json = dict[str, Any]  # a JSON schema, or a part of one

_DEEPEST = 100
"""Maximum length of a chain of references; a longer chain counts as open."""


def resolve(root: Mapping[str, Any], ref: str) -> dict[str, Any]:
    """Return the target of a reference inside a schema.

    Raises:
        LookupError: The target does not exist, or is outside the schema.
    """
    head, *path = ref.split("/")
    node: Any = root if head == "#" else None
    for part in path:
        key = part.replace("~1", "/").replace("~0", "~")
        node = cast(_Json, node).get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        raise LookupError(
            f"the reference {ref!r} has no target in the schema; define it under $defs"
        )
    return cast(_Json, node)


def open_place(schema: Mapping[str, Any]) -> str | None:
    """Return the path of the first part of a JSON schema that providers cannot enforce, or None.

    Native output requires that every part has a type and every object is closed. Objects with free
    keys, values of any type, tuples and recursive types are not supported.
    """
    return _open(dict(schema), dict(schema), "$", (), set())


def _open(node: Any, root: _Json, path: str, seen: tuple[str, ...], closed: set[str]) -> str | None:
    """Return the path of the first open part; `closed` caches references without open parts."""
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


def split_schema(schema: Mapping[str, JsonValue]) -> tuple[_Schema, str]:
    """Split a tool's schema into the part that the Messages API accepts and a text for the rest.

    The API refuses `allOf`, `anyOf` and `oneOf` at the top level. It also refuses top-level
    property names that are longer than 64 characters or contain characters other than letters,
    digits, `_`, `.` and `-`. One such tool makes every request fail.

    Args:
        schema: The schema of an object.
    """
    accepted = {key: value for key, value in schema.items() if key not in _COMBINED}
    remaining: _Schema = {key: schema[key] for key in _COMBINED if key in schema}
    own = cast(_Schema, schema.get("properties") or {})
    properties = {**_of_branches(remaining), **own}
    odd = {name: one for name, one in properties.items() if not _KEY.fullmatch(name)}
    if not remaining and not odd:
        return accepted, ""
    accepted["properties"] = {name: one for name, one in properties.items() if name not in odd}
    if odd:
        required = cast(list[str], schema.get("required") or [])
        accepted["required"] = [name for name in required if name not in odd]
        remaining |= {
            "properties": {name: one for name, one in own.items() if name in odd},
            "required": [name for name in required if name in odd],
        }
        accepted.pop("additionalProperties", None)  # it would forbid the properties left out
    rest = json.dumps(remaining, ensure_ascii=False)
    return accepted, f"The arguments must also fit this JSON schema: {rest}"


def _of_branches(combined: Mapping[str, Any]) -> _Schema:
    """Return the properties of all branches; `anyOf` combines those that differ."""
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
_Event = TypeVar("_Event")

_END: Any = object()


def nothing_else(seconds: float) -> TimeoutError:
    """Return the error for a server that sent nothing but pings and comments."""
    return TimeoutError(f"the server sent nothing but pings or comments for {seconds:.0f} s")


async def bounded(
    events: AsyncIterator[_Event], seconds: float, counts: Callable[[_Event], bool]
) -> AsyncGenerator[_Event]:
    """Yield the events of a stream, and limit the wait for each one that counts.

    Args:
        events: The stream. It cannot be used any more after an error.
        seconds: How long to wait. Time that the reader of the events takes is not included.
        counts: Whether an event is a part of the answer.

    Raises:
        TimeoutError: No event that counts arrived in time.
    """
    left = seconds
    while True:
        begun = anyio.current_time()
        event = _END
        with anyio.move_on_after(left) as wait:
            event = await anext(events, _END)
        if wait.cancelled_caught:
            raise nothing_else(seconds)
        if event is _END:
            return
        left = seconds if counts(event) else left - (anyio.current_time() - begun)
        yield event


_MANY_MODULES = 100
"""An import of more modules than this is the import of an SDK."""


@dataclass(slots=True)
class _OfLoop(Generic[_Client]):
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    made: WeakKeyDictionary[object, tuple[Hashable, _Client]] = field(
        default_factory=WeakKeyDictionary[object, "tuple[Hashable, _Client]"]
    )


class LoopClients(Generic[_Client]):
    """The HTTP clients of all models of one kind, by event loop.

    Args:
        name: Name of the kind, for debugging.
    """

    def __init__(self, name: str) -> None:
        self._loops: RunVar[_OfLoop[_Client]] = RunVar(name)

    async def get(
        self, model: object, credentials: Hashable, make: Callable[[], _Client]
    ) -> _Client:
        """Return the model's client for this event loop.

        Args:
            model: The model.
            credentials: The credentials. If they changed, a new client is created.
            make: Creates a client. It is called in a thread, because it may import an SDK.
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
        """Remove and return the model's client for this event loop, if there is one."""
        loop = self._loops.get(None)
        known = loop.made.pop(model, None) if loop is not None else None
        return None if known is None else known[1]


def _without_collections(make: Callable[[], _Client]) -> _Client:
    """Call a function with garbage collection turned off.

    The import of an SDK creates some hundred thousand permanent objects. Each collection during
    the import would block all other threads for a tenth of a second, and so would the next one
    after it.
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
