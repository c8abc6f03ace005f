"""A durable deep agent: the engine (`harness`) and the MCP server around it (`server`).

Every public name of `deep_agent_mcp.harness` can be imported from here too. Nothing is loaded
before it is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .harness import *  # noqa: F403

# An installed package holds both folders; in a checkout they lie beside this one.
_HERE = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_HERE, "harness")):
    __path__ = [_HERE, os.path.dirname(_HERE)]


def __getattr__(name: str) -> Any:
    public = import_module(".harness", __name__)
    if name == "__all__":
        return public.__all__
    if name not in public.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(public, name)


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
