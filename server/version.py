"""Name and version of the product, as clients and `--version` see them."""

from __future__ import annotations

from functools import cache

__all__ = ["NAME", "version"]

NAME = "deep-agent-mcp"


@cache
def version() -> str:
    """Return the installed distribution's version; `0+source` in a checkout not installed."""
    from importlib import metadata  # 15 ms that only this question costs

    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return "0+source"
