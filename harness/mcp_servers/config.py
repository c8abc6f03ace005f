"""Server configuration: how to reach an MCP server, which of its tools to use, and their names.

A server is always one of three classes, never a string. Only `StdioServer` starts a process, so a
command in the place of a URL never starts one.

Mounted tools are named `<server>_<tool>`, in `[a-z0-9_]`, 64 characters at most. A name must mean
the same tool in every process, even if some servers are unavailable, because a run that waits for
an approval is resumed by name. So names only depend on the configuration and the server's own list,
never on the order in which servers answered. If a name is ambiguous, it ends with a digest of
(server, tool).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit, urlunsplit

from .._internal.patterns import fits
from ..errors import AgentBuildError
from .oauth_tokens import LoginStore

__all__ = [
    "HttpServer",
    "MCPServer",
    "OAuth",
    "SseServer",
    "StdioServer",
    "check_names",
    "check_servers",
    "digest_name",
    "leaves_room",
    "offered_names",
    "prefix_of",
]


@dataclass(frozen=True)
class MCPServer:
    """Base of server configurations; use one of the three kinds.

    Attributes:
        tools: Globs over the server's own tool names; only matching tools are used. None for all.
        approve: Globs over the same names; a person has to approve each call of a matching tool.
        on_demand: Whether the model searches the server's tools with `find_tools` instead of seeing
            all of them.
        timeout: Seconds a call may take, including the wait for its turn.
        connect_timeout: Seconds the server may take to start and list its tools.

    Raises:
        AgentBuildError: A value is not valid.
    """

    _: KW_ONLY
    tools: Sequence[str] | None = None
    approve: Sequence[str] = ()
    on_demand: bool = False
    timeout: float = 60.0
    connect_timeout: float = 20.0

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if type(self) is MCPServer:
            raise AgentBuildError("MCPServer is abstract; use StdioServer, HttpServer or SseServer")
        for name in ("tools", "approve"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise AgentBuildError(f"{kind}: {name} is a sequence of globs; write [{value!r}]")
        for name in ("timeout", "connect_timeout"):
            value = getattr(self, name)
            if not value > 0:
                raise AgentBuildError(f"{kind}: {name} must be more than 0 seconds; got {value}")

    def needs_approval(self, tool: str) -> bool:
        """Whether a person has to approve calls of a tool, by its own name."""
        return fits(tool, self.approve)


@dataclass(frozen=True)
class StdioServer(MCPServer):
    """An MCP server that runs as a child process, over its stdin and stdout.

    It gets a small safe environment (such as PATH and HOME) and `env`, not the environment of this
    process with its keys. Its stderr goes to ours.

    Attributes:
        command: The program; found in PATH, never run through a shell.
        args: Its arguments.
        env: Additional environment variables.
        cwd: Its working directory; by default that of this process.
    """

    command: str
    args: Sequence[str] = field(default=(), repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.command:
            raise AgentBuildError("StdioServer: the command is empty")
        if isinstance(cast(object, self.args), str):
            raise AgentBuildError(
                "StdioServer: args is a sequence, one argument each; got one text"
            )


@dataclass(frozen=True)
class OAuth:
    """Login of a person to a remote server. The defaults suit servers that register clients.

    Attributes:
        tokens: The storage of the tokens. Without it, the server cannot be used.
        client_id: The id of a client that was registered beforehand.
        client_secret: Its secret, if it has one.
        client_metadata_url: An https URL of a client id metadata document. It is used instead of
            registration if the authorization server supports it.
        callback_port: The port on 127.0.0.1 to which the browser is redirected; 0 for any free one.
    """

    tokens: LoginStore | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_metadata_url: str | None = None
    callback_port: int = 0

    def __post_init__(self) -> None:
        if self.client_secret is not None and self.client_id is None:
            raise AgentBuildError("OAuth: client_secret needs the client_id it belongs to")
        if not 0 <= self.callback_port <= 65_535:
            raise AgentBuildError(
                f"OAuth: callback_port is a number from 0 to 65535; got {self.callback_port}"
            )
        document = urlsplit(self.client_metadata_url or "https://example.com/client.json")
        if document.scheme != "https" or document.path in ("", "/"):
            raise AgentBuildError(
                "OAuth: client_metadata_url is an https URL with a path; got "
                f"{self.client_metadata_url!r}"
            )


@dataclass(frozen=True)
class HttpServer(MCPServer):
    """An MCP server with a Streamable HTTP endpoint.

    Attributes:
        url: The endpoint, such as `https://example.com/mcp`.
        headers: Sent with every request, such as `Authorization`.
        auth: How a person logs in to it, if it requires OAuth.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    auth: OAuth | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            parts = urlsplit(self.url)
            is_url = parts.scheme in ("http", "https") and bool(parts.netloc)
        except ValueError:  # such as a bracket that is not closed
            is_url = False
        if not is_url:
            raise AgentBuildError(
                f"{type(self).__name__}: an http or https URL is expected; got {self.place!r}"
            )
        given = {name.lower() for name in self.headers or ()}
        if self.auth is not None and "authorization" in given:
            raise AgentBuildError(
                f"{type(self).__name__}: auth and an Authorization header exclude each other"
            )

    @property
    def place(self) -> str:
        """The URL without parts that may be secret: user, password, query."""
        return shown_url(self.url)


@dataclass(frozen=True)
class SseServer(HttpServer):
    """An MCP server with the older HTTP+SSE endpoint, such as `http://localhost:8000/sse`."""


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def check_servers(servers: Mapping[str, MCPServer]) -> None:
    """Check the servers of a middleware.

    Raises:
        AgentBuildError: A value is not a server.
    """
    for name, server in servers.items():
        if not isinstance(cast(object, server), MCPServer):
            raise AgentBuildError(
                f"MCP server {name!r}: a StdioServer, HttpServer or SseServer is expected; got "
                f"{server!r}. Nothing was started."
            )


_MAX_NAME = 64
_MAX_SERVER = 40
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OTHER = re.compile(r"[^a-z0-9_]+")


def _plain(text: str) -> str:
    return _OTHER.sub("_", _WORD_START.sub("_", text).lower())


def prefix_of(server: str) -> str:
    """Return the prefix of the names of a server's tools."""
    return _plain(server) + "_"


def check_names(servers: Collection[str]) -> None:
    """Check that the names of servers are usable and distinct.

    Raises:
        AgentBuildError: A name is empty, too long, or too similar to another one.
    """
    seen: dict[str, str] = {}
    for server in servers:
        plain = _plain(server)
        if not plain.strip("_") or len(plain) > _MAX_SERVER:
            raise AgentBuildError(
                f"MCP server {server!r}: a name has 1 to {_MAX_SERVER} letters and digits, because "
                "the names of its tools begin with it"
            )
        other = seen.setdefault(plain, server)
        if other != server:
            raise AgentBuildError(
                f"MCP servers {other!r} and {server!r} read alike ({plain!r}); rename one"
            )


def digest_name(server: str, tool: str) -> str:
    """Return a unique name for a tool."""
    digest = blake2b(f"{server}\0{tool}".encode(errors="replace"), digest_size=4).hexdigest()
    return f"{(prefix_of(server) + _plain(tool))[: _MAX_NAME - 9]}_{digest}"


def offered_names(
    server: str, tools: Sequence[str], servers: Collection[str] = ()
) -> dict[str, str]:
    """Return the offered names of a server's tools, by their own names.

    Args:
        server: The server.
        tools: Its tools' own names.
        servers: All configured servers.
    """
    prefix = prefix_of(server)
    shared = any(
        _nested(prefix, prefix_of(other)) or _nested(prefix_of(other), prefix)
        for other in servers
        if other != server
    )
    wanted = {tool: prefix + _plain(tool) for tool in tools}
    count = Counter(wanted.values())
    taken: set[str] = set()
    names: dict[str, str] = {}
    for tool in sorted(wanted, key=lambda tool: not _exact(tool)):
        name = wanted[tool]
        doubtful = count[name] > 1 and not _exact(tool)
        if shared or doubtful or len(name) > _MAX_NAME or name in taken:
            name = digest_name(server, tool)
        taken.add(name)
        names[tool] = name
    return names


_DIGEST = re.compile(r"_[0-9a-f]{8}$")
_WILD = re.compile(r"[*?]+")


def leaves_room(server: str, tools: Sequence[str] | None, name: str) -> bool:
    """Whether a server may offer a tool with a name, as far as known before it is connected.

    Args:
        server: The server.
        tools: Its `tools`: globs over the tools' own names; None for all.
        name: The name of the offered tool, or a glob over such names.
    """
    if tools is None or _WILD.search(name) or any("[" in one for one in (name, *tools)):
        return True
    own = [prefix_of(server) + "*".join(map(_plain, _WILD.split(one))) for one in tools]
    return fits(name, own) or fits(_DIGEST.sub("", name), own)


def _nested(outer: str, inner: str) -> bool:
    """Whether tools of one server can have the same names as tools of the other."""
    return inner.startswith(outer)


def _exact(tool: str) -> bool:
    return _plain(tool) == tool
