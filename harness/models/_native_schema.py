"""Native schemas: decides which JSON schemas a provider can enforce."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["open_place", "resolve"]

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
