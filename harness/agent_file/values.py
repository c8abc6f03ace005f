"""Values of an agent file: converted to Python, described by its schema, imported by name.

Python values are imported objects, texts with variables filled in, and tuples. Each error knows the
key it is about. The schema says what is accepted at a place in the file.

A file names a Python object as `{ import = "module:object" }`, and a plugin by its name. Each error
knows the key it is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .._internal.patterns import fits
from ..errors import AgentBuildError, HarnessError
from ..plugins import call_object, entry_points, load_object, resolve
from ..tools.tool import Tool, tool
from .schema import AgentFile, Imported

__all__ = [
    "AgentFileError",
    "accepted_keys",
    "accepted_value",
    "at",
    "expanded",
    "made_object",
    "made_tool",
    "own_tool",
    "python_values",
    "sentence",
]


class AgentFileError(AgentBuildError):
    """Error in an agent file: the message names the file, the line and the key.

    Attributes:
        keys: Where in the file: names of tables and keys, and places in lists, outermost first.
        problem: What is wrong, and what to do.
    """

    def __init__(self, keys: Sequence[str | int], problem: str) -> None:
        self.keys = tuple(keys)
        self.problem = problem.rstrip(".")
        super().__init__(problem)

    def under(self, *keys: str | int) -> AgentFileError:
        """Return the same error of a table inside of others."""
        return AgentFileError((*keys, *self.keys), self.problem)


@contextmanager
def at(*keys: str | int) -> Generator[None]:
    """Say of every error of the harness inside the block where in the file its cause is."""
    try:
        yield
    except AgentFileError as error:
        raise error.under(*keys) from error.__cause__
    except HarnessError as error:
        raise AgentFileError(keys, str(error)) from error


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def python_values(value: object) -> Any:
    """Return a TOML value as an argument: lists as tuples, `{ import = "module:object" }` loaded.

    Raises:
        HarnessError: An object cannot be imported.
    """
    if isinstance(value, list):
        return tuple(python_values(one) for one in cast("list[object]", value))
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        name = table.get("import")
        if isinstance(name, str) and len(table) == 1:
            return load_object(name)
        return {key: python_values(one) for key, one in table.items()}
    return value


def expanded(value: Any, environ: Mapping[str, str]) -> Any:
    """Return a value in which each `${NAME}` is the environment variable of that name.

    Raises:
        AgentFileError: There is no such variable; the text has its name.
    """

    def variable(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environ:
            raise AgentFileError(
                (),
                f"the environment variable {name} is not set; set it where the server is started",
            )
        return environ[name]

    if isinstance(value, str):
        return _VARIABLE.sub(variable, value)
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return type(items)(expanded(one, environ) for one in items)
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {key: expanded(one, environ) for key, one in table.items()}
    return value


def accepted_keys(above: Sequence[str | int]) -> list[str]:
    """Return the keys that the table at a place takes."""
    model: type[BaseModel] = AgentFile
    for key in above:
        field = None if isinstance(key, int) else _field(model, key)
        if field is not None:
            model = _model_in(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def accepted_value(keys: Sequence[str | int]) -> str:
    """Return a clause that says what the value at a place may be; empty if nothing does."""
    model: type[BaseModel] = AgentFile
    words = None
    for key in keys:
        field = None if isinstance(key, int) else _field(model, key)
        if field is not None:
            words = field.description
            model = _model_in(field.annotation) or model
    return f". Accepted: {words}" if words else ""


def _field(model: type[BaseModel], key: str) -> FieldInfo | None:
    known = model.model_fields.items()
    return next((one for name, one in known if key in (name, one.alias)), None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(cast("type[object]", annotation), BaseModel):
        return cast("type[BaseModel]", annotation)
    inner = (_model_in(one) for one in get_args(annotation))
    return next((one for one in inner if one is not None), None)


_PHRASES = {
    "Input should be": "expected",
    "a valid string": "a text",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "an object": "a table",
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid dictionary": "a table",
    "Value error, ": "",
}


def sentence(text: str) -> str:
    """Return pydantic's error text about a value in our words, as a clause."""
    for theirs, ours in _PHRASES.items():
        text = text.replace(theirs, ours)
    return text.partition(" or instance of ")[0]


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
