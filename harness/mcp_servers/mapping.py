"""Server mapping: MCP servers in the shape that clients write them, in a table or a JSON file.

`servers_from_mapping` takes the table and `servers_from_json` a file such as `.mcp.json`. Keys that
are common in clients have the same meaning here. Values of variables are never shown: errors name
the server, the key and the variable.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from .._internal.records import record
from ..errors import AgentBuildError
from .config import HttpServer, MCPServer, OAuth, SseServer, StdioServer, check_names, check_servers
from .oauth_tokens import LoginStore

__all__ = ["servers_from_json", "servers_from_mapping"]

_COMMON = {"type", "tools", "approve", "on_demand", "timeout", "connect_timeout", "disabled"}
_STDIO = {"command", "args", "env", "cwd"}
_REMOTE = {"url", "headers", "auth"}
_OAUTH = {"client_id", "client_secret", "client_metadata_url", "callback_port"}
_KINDS: Mapping[str, type[StdioServer | HttpServer]] = {
    "stdio": StdioServer,
    "http": HttpServer,
    "streamable-http": HttpServer,
    "sse": SseServer,
}
_FILE_KEYS = ("mcpServers", "servers")
_MOST_BYTES = 1 << 20

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def servers_from_mapping(
    table: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    base: Path,
    tokens: LoginStore | None = None,
) -> dict[str, MCPServer]:
    """Return servers by name.

    A server has `command`, `args`, `env` and `cwd`, or `url`, `headers` and `auth` (`"oauth"`, or a
    table of `OAuth`'s fields). Both may have `type` (`stdio`, `http`, `sse`), `tools`, `approve`,
    `on_demand`, `timeout`, `connect_timeout` and `disabled`, which leaves the server out.
    `${NAME}` in a text is replaced by a variable, `${NAME:-text}` by a variable with a default.

    Args:
        table: The servers' tables by name.
        environ: The variables.
        base: The directory for relative `cwd`s, and for processes without one.
        tokens: The storage of the tokens of OAuth servers.

    Raises:
        AgentBuildError: A key or value is not accepted, or a variable is missing. Nothing was
            started.
    """
    made: dict[str, MCPServer] = {}
    for name, given in table.items():
        if not isinstance(given, Mapping):
            raise _refused(
                name, f"a table is expected, such as {{command = …}}; got {_kind(given)}"
            )
        reader = _Reader(name, cast("Mapping[str, Any]", given), environ, base, tokens)
        if not reader.flag("disabled"):
            made[name] = reader.server()
    check_servers(made)
    check_names(made)
    return made


def servers_from_json(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    tokens: LoginStore | None = None,
) -> dict[str, MCPServer]:
    """Return the servers of a client's JSON file, such as `.mcp.json`.

    They are below `mcpServers`, or `servers` as VS Code has it. Relative directories count from
    the file's. See `servers_from_mapping`.

    Args:
        path: The file.
        environ: The variables; by default the environment of this process.
        tokens: The storage of the tokens of OAuth servers.

    Raises:
        AgentBuildError: The file cannot be read or has a different format. Nothing was started.
    """
    file = Path(os.path.abspath(Path(path).expanduser()))
    data = _read(file)
    keys = [key for key in _FILE_KEYS if key in data]
    if len(keys) != 1 or not isinstance(data[keys[0]], dict):
        raise AgentBuildError(
            f"{file} has no MCP servers: an object with the servers by name is expected under one "
            f"of the keys {' and '.join(map(repr, _FILE_KEYS))}. Nothing was started."
        )
    table = cast("dict[str, Any]", data[keys[0]])
    environ = os.environ if environ is None else environ
    try:
        return servers_from_mapping(table, environ=environ, base=file.parent, tokens=tokens)
    except AgentBuildError as error:
        raise AgentBuildError(f"{file}: {error}") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        if not file.is_file():  # a pipe would be waited for
            raise AgentBuildError(f"{file} is not an existing file. Nothing was started.")
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise AgentBuildError(f"{file} is larger than 1 MiB. Nothing was started.")
        decoded = text.decode("utf-8-sig")
        data = json.loads(decoded)
    except OSError as error:
        why = error.strerror or error
        raise AgentBuildError(f"{file} cannot be read: {why}. Nothing was started.") from error
    except (ValueError, RecursionError) as error:
        raise AgentBuildError(f"{file} is not valid JSON: {error}. Nothing was started.") from error
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


@record
class _Reader:
    """Reads the table of one server."""

    name: str
    table: Mapping[str, Any]
    environ: Mapping[str, str]
    base: Path
    tokens: LoginStore | None

    def server(self) -> MCPServer:
        """Return the server."""
        kind = self._type()
        self._check_keys(kind)
        options: dict[str, Any] = {
            "tools": self._texts("tools"),
            "approve": self._texts("approve") or (),
            "on_demand": self.flag("on_demand"),
            **{
                key: self._seconds(key)
                for key in ("timeout", "connect_timeout")
                if key in self.table
            },
        }
        try:
            if kind is StdioServer:
                return StdioServer(
                    self._text("command"),
                    self._texts("args") or (),
                    env=self._named("env"),
                    cwd=self._cwd(),
                    **options,
                )
            remote = cast(type[HttpServer], kind)
            url, headers = self._text("url"), self._named("headers")
            return remote(url, headers, auth=self._auth(), **options)
        except AgentBuildError as error:
            text = str(error)
            raise error if text.startswith("MCP server") else _refused(self.name, text) from error

    def flag(self, key: str) -> bool:
        """Return the value of a switch."""
        value = self.table.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def _type(self) -> type[StdioServer | HttpServer]:
        command, url = "command" in self.table, "url" in self.table
        if command == url:
            every = _COMMON | _STDIO | _REMOTE
            for key in () if command else self.table:
                if key not in every:
                    raise _refused(self.name, _unknown_key(key, every))
            got = "both" if command else "neither"
            raise _refused(self.name, f"`command` or `url` is expected; it has {got}")
        given = self.table.get("type", "stdio" if command else "http")
        kind = _KINDS.get(given) if isinstance(given, str) else None
        if kind is None:
            raise self._wrong("type", " or ".join(map(repr, _KINDS)), given)
        if (kind is StdioServer) != command:
            raise _refused(
                self.name, f"type {given!r} does not go with {'command' if command else 'url'}"
            )
        return kind

    def _check_keys(self, kind: type[StdioServer | HttpServer]) -> None:
        accepted = _COMMON | (_STDIO if kind is StdioServer else _REMOTE)
        for key in self.table:
            if key not in accepted:
                raise _refused(self.name, _unknown_key(key, accepted))

    def _auth(self) -> OAuth | None:
        given = self.table.get("auth")
        if given is None:
            return None
        if given == "oauth":
            return OAuth(self.tokens)
        if not isinstance(given, Mapping):
            raise self._wrong(
                "auth", "'oauth', or a table with " + ", ".join(sorted(_OAUTH)), given
            )
        table = cast("Mapping[str, Any]", given)
        for key in table:
            if key not in _OAUTH:
                raise _refused(self.name, f"auth: {_unknown_key(key, _OAUTH)}")
        port = table.get("callback_port", 0)
        if not isinstance(port, int) or isinstance(port, bool):
            raise self._wrong("auth.callback_port", "a number from 0 to 65535", port)
        texts = {
            key: self._expanded(f"auth.{key}", value)
            for key, value in table.items()
            if key != "callback_port"
        }
        return OAuth(self.tokens, callback_port=port, **texts)

    def _cwd(self) -> Path:
        if "cwd" not in self.table:
            return self.base
        return self.base / Path(self._text("cwd")).expanduser()

    def _seconds(self, key: str) -> float:
        value = self.table[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "seconds, more than 0", value)
        return float(value)

    def _text(self, key: str) -> str:
        return self._expanded(key, self.table[key])

    def _texts(self, key: str) -> tuple[str, ...] | None:
        given = self.table.get(key)
        if given is None:
            return None
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise self._wrong(key, "a list of texts", given)
        items = cast("Sequence[Any]", given)
        return tuple(self._expanded(f"{key}[{n}]", one) for n, one in enumerate(items))

    def _named(self, key: str) -> dict[str, str] | None:
        given = self.table.get(key)
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise self._wrong(key, "a table of texts", given)
        named = cast("Mapping[str, Any]", given)
        return {name: self._expanded(f"{key}.{name}", one) for name, one in named.items()}

    def _expanded(self, key: str, text: object) -> str:
        """Return a text with the values of variables in place."""
        if not isinstance(text, str):
            raise self._wrong(key, "a text", text)

        def value(reference: re.Match[str]) -> str:
            parts = _NAME.fullmatch(reference[1])
            if parts is None:
                raise _refused(
                    self.name,
                    f"{key}: {reference[0]} is not understood; write ${{NAME}} or "
                    "${NAME:-text} with the name of a variable",
                )
            name, default = parts.groups()
            found = self.environ.get(name)
            if default is not None:
                return found or default
            if found is None:
                raise _refused(
                    self.name,
                    f"{key}: the variable {name} is not set; set it, or write "
                    f"${{{name}:-text}} with what to use without it",
                )
            return found

        return _REFERENCE.sub(value, text)

    def _wrong(self, key: str, accepted: str, got: object) -> AgentBuildError:
        return _refused(self.name, f"{key}: {accepted} is expected; got {_kind(got)}")


def _kind(value: object) -> str:
    """Describe a value without showing possible secrets."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    names: dict[type, str] = {str: "a text", list: "a list", dict: "a table", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _unknown_key(key: str, accepted: set[str]) -> str:
    near = difflib.get_close_matches(key, accepted, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no key {key!r}.{hint} Accepted: {', '.join(sorted(accepted))}"


def _refused(server: str, why: str) -> AgentBuildError:
    return AgentBuildError(f"MCP server {server!r}: {why.rstrip('.')}. Nothing was started.")
