"""Agent file reader: reports every mistake with its file, line and key, and what is accepted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue, ValidationError

from .._internal.records import record
from ..definitions import no_such
from ..definitions.confined_files import ConfinedFiles
from ..definitions.frontmatter import MAX_FILE_BYTES, DefinitionError, decode, line_of, parse_toml
from ..plugins import entry_points
from .parts import AgentParts, parts_of
from .schema import AgentFile, AnswerTable, FileReference, MiddlewareTable
from .values import AgentFileError, accepted_keys, accepted_value, sentence

__all__ = ["AgentFileText", "plugin_names", "python_names", "read_agent_file"]


@record
class AgentFileText:
    """An agent file as it was read.

    Attributes:
        path: Where it is.
        text: All of it.
        tables: What it says.
        files: Reads it, and the files beside it.
    """

    path: Path
    text: str
    tables: Mapping[str, Any]
    files: ConfinedFiles

    @classmethod
    def read(cls, path: Path, files: ConfinedFiles | None = None) -> AgentFileText:
        """Read a file; blocks.

        Raises:
            DefinitionError: It cannot be read, or is not TOML.
        """
        files = files or ConfinedFiles()
        text = _text(path, files)
        return cls(path, text, parse_toml(text, path), files)

    def error(self, keys: Sequence[str | int], problem: str) -> DefinitionError:
        """Return an error about a key, with its line."""
        name = _dotted(keys)
        place = f"{self.path}:{line_of(self.text, keys)}"
        problem = problem.rstrip(".")
        end = "" if problem.endswith(("?", "!")) else "."
        return DefinitionError(f"{place}: {f'{name}: ' if name else ''}{problem}{end}")

    def validated(self, tables: Mapping[str, Any]) -> tuple[AgentFile, Sequence[Path]]:
        """Return some of its tables as a model that has the texts of the files they name.

        The paths are those of these files.

        Raises:
            DefinitionError: A key is unknown, a value has the wrong type, or a file cannot be read.
        """
        try:
            file = AgentFile.model_validate(tables)
            return self._with_texts(file), [self._beside(one) for one in _named_by(file)]
        except ValidationError as refused:
            raise self._explained(refused) from refused
        except AgentFileError as error:
            raise self.error(error.keys, error.problem) from error

    def parts(self, file: AgentFile, environ: Mapping[str, str]) -> AgentParts:
        """Return the parts of an agent that the file describes; see `parts_of`.

        Raises:
            DefinitionError: Something it names is missing or does not fit.
        """
        try:
            return parts_of(file, environ, self.path.parent)
        except AgentFileError as error:
            raise self.error(error.keys, error.problem) from error

    def _with_texts(self, file: AgentFile) -> AgentFile:
        agent = self._filled(("agent",), file.agent)
        agents = {name: self._filled(("agents", name), one) for name, one in file.agents.items()}
        return file.model_copy(update={"agent": agent, "agents": agents})

    def _filled(self, keys: tuple[str, ...], table: Any) -> Any:
        changes: dict[str, Any] = {}
        if isinstance(table.instructions, FileReference):
            changes["instructions"] = self._named((*keys, "instructions"), table.instructions.file)
        answer = table.answer
        if isinstance(answer, AnswerTable) and isinstance(answer.json_schema, str):
            at = (*keys, "answer", "schema")
            text = self._named(at, answer.json_schema)
            try:
                schema = json.loads(text)
            except ValueError as error:
                raise AgentFileError(at, f"{answer.json_schema} is not JSON: {error}") from error
            if not isinstance(schema, dict):
                raise AgentFileError(
                    at, f"{answer.json_schema} is not a JSON Schema: got {schema!r:.80}"
                )
            changes["answer"] = AnswerTable(schema=cast("dict[str, JsonValue]", schema))
        return table.model_copy(update=changes) if changes else table

    def _named(self, keys: Sequence[str | int], name: str) -> str:
        try:
            return _text(self._beside(name), self.files)
        except DefinitionError as error:
            raise AgentFileError(keys, str(error)) from error

    def _beside(self, name: str) -> Path:
        return self.path.parent / Path(name).expanduser()

    def _explained(self, refused: ValidationError) -> DefinitionError:
        told: list[str] = []
        found = [
            (_keys(one["loc"], self.tables, is_named=one["type"] in _NAMED), one)
            for one in refused.errors(include_url=False)
        ]
        places = Counter(keys for keys, one in found if one["type"] in _OF_TYPES)
        for keys, one in found:
            if one["type"] == "extra_forbidden":
                *above, key = keys
                accepted = accepted_keys(above)
                told.append(str(self.error(keys, no_such("key", str(key), accepted))))
            else:
                accepted = accepted_value(keys)
                if one["type"] == "missing":
                    problem = "this key is required"
                elif one["type"] in _OF_TYPES and places[keys] > 1:  # once for all types of a union
                    problem = f"{_shown(keys, one['input'])} is not accepted"
                else:
                    problem = f"{sentence(one['msg'])}; got {_shown(keys, one['input'])}"
                told.append(str(self.error(keys, f"{problem}{accepted}")))
        return DefinitionError("\n".join(dict.fromkeys(told)))


_MAY_BE_SECRET = frozenset({"url", "options", "mcp_servers", "model"})
"""Keys at and below which a text may be a password or an API key."""


def _shown(keys: Sequence[str | int], value: object) -> str:
    """Return a value for a message, which may end in a log: not what may hold a secret."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    hidden = isinstance(value, str) and not _MAY_BE_SECRET.isdisjoint(keys)
    return "a text" if hidden else f"{value!r:.80}"


def read_agent_file(path: Path, environ: Mapping[str, str]) -> tuple[AgentFile, AgentParts]:
    """Read an agent file for use in Python; blocks.

    Raises:
        DefinitionError: Something in it is wrong; the text names file, line and key.
    """
    text = AgentFileText.read(path)
    file, _ = text.validated(text.tables)
    return file, text.parts(file, environ)


def python_names(file: AgentFile) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the places of a file that run code of its choice: their keys, and what they name."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    found += [(("agent", "tools", at), one) for at, one in enumerate(file.agent.tools)]
    for name, one in file.agents.items():
        at_tools = enumerate(one.tools or ())
        found += [(("agents", name, "tools", at), t) for at, t in at_tools if ":" in t]
        found += _of_middleware(("agents", name, "middleware"), one.middleware)
    found += _of_middleware(("middleware",), file.middleware)
    _imports((), file.model_dump(by_alias=True), found)
    if file.store is not None and file.store.vectors is not None:
        found.append((("store", "vectors", "embed"), file.store.vectors.embed))
    if isinstance(file.mcp_servers, str):
        found.append((("mcp_servers",), file.mcp_servers))
    else:
        for name, server in file.mcp_servers.items():
            if "command" in server:
                found.append((("mcp_servers", name, "command"), str(server["command"])))
    return found


def plugin_names(file: AgentFile) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the places of a file that name what an installed plugin brings: keys, and names."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    backends = {path: one.backend for path, one in file.files.items()}
    found += [(("files", at, "backend"), b) for at, b in backends.items() if isinstance(b, str)]
    stacks: list[tuple[tuple[str | int, ...], Sequence[MiddlewareTable]]]
    stacks = [
        ((), file.middleware),
        *((("agents", k), v.middleware) for k, v in file.agents.items()),
    ]
    middleware = entry_points("middleware")
    for keys, entries in stacks:
        uses = ((place, one.use) for place, one in enumerate(entries))
        found += [((*keys, "middleware", at, "use"), use) for at, use in uses if use in middleware]
    tools = entry_points("tools")
    for name, one in file.agents.items():
        named = enumerate(one.tools or ())
        found += [(("agents", name, "tools", at), tool) for at, tool in named if tool in tools]
    return found


def _of_middleware(
    keys: tuple[str | int, ...], entries: Sequence[MiddlewareTable]
) -> list[tuple[tuple[str | int, ...], str]]:
    return [((*keys, at, "use"), one.use) for at, one in enumerate(entries) if ":" in one.use]


def _imports(
    keys: tuple[str | int, ...], value: object, found: list[tuple[tuple[str | int, ...], str]]
) -> None:
    if isinstance(value, dict):
        for key, one in cast("dict[str, object]", value).items():
            if key == "import" and isinstance(one, str):
                found.append((keys, one))
            else:
                _imports((*keys, key), one, found)
    elif isinstance(value, list | tuple):
        for at, one in enumerate(cast("Sequence[object]", value)):
            _imports((*keys, at), one, found)


_OF_TYPES = (
    *("string_type", "int_type", "float_type", "bool_type", "list_type", "tuple_type"),
    *("dict_type", "model_type", "model_attributes_type"),
)
"""Errors about a value of another type."""

_NAMED = ("missing", "extra_forbidden")
"""Errors about a key, which need not be in the file."""


def _keys(
    loc: Sequence[str | int], tables: Mapping[str, Any], *, is_named: bool
) -> tuple[str | int, ...]:
    """Return the keys of an error's place that are in the file; names of types are left out."""
    keys: list[str | int] = []
    value: Any = tables
    for position, one in enumerate(loc):
        if isinstance(value, dict) and one in value:
            value = cast("dict[Any, Any]", value)[one]
        elif isinstance(value, list) and isinstance(one, int):
            value = cast("list[Any]", value)[one]
        elif not is_named or position < len(loc) - 1 or not isinstance(value, dict):
            continue
        keys.append(one)
    return tuple(keys)


def _dotted(keys: Sequence[str | int]) -> str:
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _named_by(file: AgentFile) -> list[str]:
    found: list[str] = []
    for table in (file.agent, *file.agents.values()):
        if isinstance(table.instructions, FileReference):
            found.append(table.instructions.file)
        if table.answer is not None and isinstance(table.answer.json_schema, str):
            found.append(table.answer.json_schema)
    if isinstance(file.mcp_servers, str):
        found.append(file.mcp_servers)
    return found


def _text(path: Path, files: ConfinedFiles) -> str:
    try:
        return decode(files.read(path, MAX_FILE_BYTES + 1), path)
    except OSError as error:
        raise DefinitionError(
            f"{path} cannot be read: {error.strerror or error}. Name a readable file."
        ) from error
