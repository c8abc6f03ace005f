"""Objects of an agent file: tools, models and backends in Python, imported or made by a plugin.

A file names a Python object as `{ import = "module:object" }`, and a plugin by its name. Each error
knows the key it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from .._internal.patterns import fits
from ..plugins import call_object, entry_points, load_object, resolve
from ..tools.tool import Tool, tool
from .schema import Imported
from .values import AgentFileError, at

__all__ = ["made_object", "made_tool", "own_tool"]

_BUILT_IN = frozenset(
    {
        *("ls", "read_file", "write_file", "edit_file", "glob", "grep"),
        *("write_todos", "skill", "execute", "job"),
    }
)
"""Tools that most subagents name. Looking for plugins takes as long as reading the whole file."""


def made_object(
    given: Imported | str,
    attribute: str,
    what: str,
    *,
    group: str = "",
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Return an object, or what it returns when it is called.

    Args:
        given: Its name, or that of a plugin.
        attribute: What the object has.
        what: What it is to be, such as `a backend`.
        group: The group of the plugin.
        options: Keywords to call it with; None uses an object as it is if it has the attribute.

    Raises:
        AgentFileError: There is none, it raised, or it is something else.
    """
    if isinstance(given, str):
        return _made(given, resolve(given, group), attribute, what, options)
    with at("import"):
        return _made(given.path, load_object(given.path), attribute, what, options)


def _made(
    name: str, found: Any, attribute: str, what: str, options: Mapping[str, Any] | None
) -> Any:
    if options is None and hasattr(found, attribute) and not isinstance(found, type):
        return found
    if not callable(found):
        kind = "a function" if options else f"{what} nor a function"
        raise AgentFileError((), f"{name} is not {kind} that returns one; got {found!r:.200}")
    made = call_object(found, name, **(options or {}))
    if not hasattr(made, attribute):
        raise AgentFileError((), f"{name} returned {made!r:.200}, which is not {what}")
    return made


def made_tool(name: str, place: int) -> Tool:
    """Return the tool of an entry of `tools`: `module:function`, or the name of a plugin.

    Args:
        name: The entry.
        place: Its place in the list.

    Raises:
        AgentFileError: There is none, or it cannot be a tool.
    """
    with at("tools", place):
        found: Tool | Callable[..., Any] | object = resolve(name, "tools")
        if not (isinstance(found, Tool) or callable(found)):
            raise AgentFileError((), f"{name!r} is neither a tool nor a function; got {found!r}")
        return found if isinstance(found, Tool) else tool(found)


def own_tool(name: str, place: int, shared: Collection[str]) -> Tool | str:
    """Return the tool of an entry of a subagent's `tools`, or its name if its caller has it.

    Args:
        name: The entry.
        place: Its place in the list.
        shared: Names of its caller's tools, and globs over them.

    Raises:
        AgentFileError: It cannot be imported, or cannot be a tool.
    """
    known = name in _BUILT_IN or fits(name, [*shared])
    if ":" in name or (not known and name in entry_points("tools")):
        return made_tool(name, place)
    return name
