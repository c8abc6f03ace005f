"""Server configuration: how to reach an MCP server, and which of its tools to use.

A server is always one of three classes, never a string: only `StdioServer` starts a process, and
nobody gets there by writing a command where a URL was meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from ..errors import AgentBuildError

__all__ = ["HttpServer", "MCPServer", "SseServer", "StdioServer", "check_servers"]


@dataclass(frozen=True)
class MCPServer:
    """What all kinds of servers have in common; use one of the three kinds.

    Attributes:
        tools: Globs over the server's own tool names; only matching tools are used. None for all.
        timeout: Seconds a call may take, the wait for its turn included.
        connect_timeout: Seconds the server may take to start and say what it offers.

    Raises:
        AgentBuildError: A value makes no sense.
    """

    _: KW_ONLY
    tools: Sequence[str] | None = None
    timeout: float = 60.0
    connect_timeout: float = 20.0

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if type(self) is MCPServer:
            raise AgentBuildError("MCPServer is abstract; use StdioServer, HttpServer or SseServer")
        if isinstance(cast(object, self.tools), str):
            raise AgentBuildError(f"{kind}: tools is a sequence of globs; write [{self.tools!r}]")
        for name in ("timeout", "connect_timeout"):
            value = getattr(self, name)
            if not value > 0:
                raise AgentBuildError(f"{kind}: {name} must be more than 0 seconds; got {value}")


@dataclass(frozen=True)
class StdioServer(MCPServer):
    """A server that is started as a child process and spoken to over its stdin and stdout.

    It gets a small safe environment (such as PATH and HOME) and `env`, not all of ours: keys of
    this process are none of its business. Its stderr goes to ours.

    Attributes:
        command: The program; found in PATH, never run through a shell.
        args: Its arguments.
        env: Further environment variables.
        cwd: Its working directory; ours by default.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.command:
            raise AgentBuildError("StdioServer: the command is empty")
        if isinstance(cast(object, self.args), str):
            raise AgentBuildError(
                f"StdioServer: args is a sequence, one argument each; got {self.args!r}"
            )


@dataclass(frozen=True)
class HttpServer(MCPServer):
    """A server behind a Streamable HTTP endpoint.

    Attributes:
        url: The endpoint, such as `https://example.com/mcp`.
        headers: Sent with every request, such as `Authorization`.
    """

    url: str
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise AgentBuildError(
                f"{type(self).__name__}: an http or https URL is expected; got {self.url!r}"
            )


@dataclass(frozen=True)
class SseServer(HttpServer):
    """A server behind the older HTTP+SSE endpoint, such as `http://localhost:8000/sse`."""


def check_servers(servers: Mapping[str, MCPServer]) -> None:
    """Check what a middleware is given.

    Raises:
        AgentBuildError: A value is no server.
    """
    for name, server in servers.items():
        if not isinstance(cast(object, server), MCPServer):
            raise AgentBuildError(
                f"MCP server {name!r}: a StdioServer, HttpServer or SseServer is expected; got "
                f"{server!r}. Nothing was started."
            )
