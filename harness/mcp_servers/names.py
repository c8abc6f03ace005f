"""Names of mounted tools: `<server>_<tool>` in `[a-z0-9_]`, 64 characters at most.

A name must lead to the same tool in every process, whichever servers can be reached at the moment:
a run that waits for an approval is resumed by name. So names follow from the configuration and
the server's own list alone, never from the order in which servers answered.

Where a name could be read as another tool's, it ends with a digest of (server, tool).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from hashlib import blake2b

from ..errors import AgentBuildError

__all__ = ["check_names", "digest_name", "offered_names", "prefix_of"]

_MAX_NAME = 64
_MAX_SERVER = 40
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OTHER = re.compile(r"[^a-z0-9_]+")


def _plain(text: str) -> str:
    return _OTHER.sub("_", _WORD_START.sub("_", text).lower())


def prefix_of(server: str) -> str:
    """Return what the names of a server's tools begin with."""
    return _plain(server) + "_"


def check_names(servers: Collection[str]) -> None:
    """Check that servers can be told apart.

    Raises:
        AgentBuildError: A name is empty, too long, or reads like another one.
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
    """Return the name that no other tool has."""
    digest = blake2b(f"{server}\0{tool}".encode(errors="replace"), digest_size=4).hexdigest()
    return f"{(prefix_of(server) + _plain(tool))[: _MAX_NAME - 9]}_{digest}"


def offered_names(
    server: str, tools: Sequence[str], servers: Collection[str] = ()
) -> dict[str, str]:
    """Return the names under which a server's tools are offered, by their own names.

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


def _nested(outer: str, inner: str) -> bool:
    """Whether tools of one server can be named like tools of the other."""
    return inner.startswith(outer)


def _exact(tool: str) -> bool:
    return _plain(tool) == tool
