"""Python objects by name: `package.module:object`, or an entry point of an installed plugin."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

from ..definitions.registry import no_such
from ..errors import AgentBuildError

__all__ = ["load_object", "resolve"]


def load_object(name: str) -> Any:
    """Import an object by its name.

    Raises:
        AgentBuildError: It cannot be imported; the text says why.
    """
    module, _, attr = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attr.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise AgentBuildError(f"{name!r} cannot be imported: {error}") from error
    return found


def resolve(name: str, group: str, also: Collection[str] = ()) -> Any:
    """Return a plugin of a group by its name, or an object by `module:object`.

    Raises:
        AgentBuildError: There is none.
    """
    if ":" in name:
        return load_object(name)
    raise AgentBuildError(no_such(group, name, also))
