"""Values of an agent file as Python has them: imported objects, texts with variables, tuples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from ..plugins import load_object
from .errors import AgentFileError

__all__ = ["expanded", "python_values"]

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
                (), f"the environment has no variable {name}; set it where the server is started"
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
