"""Prints `server.json`, this product's entry in the MCP registry.

    python .ci/release registry io.github.OWNER [--mcpb FILE URL] > server.json

The registry takes an entry only from who owns the namespace, and only if the README on the package
index has the line `mcp-name: NAMESPACE/deep-agent-mcp`; `mcp-publisher publish` sends it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from release.project import REPO, Project

__all__ = ["main", "mcpb_package", "server_entry"]

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
DESCRIPTION = "A durable deep agent: todos, files, skills, subagents, approvals and history."
NAMESPACE = re.compile(r"[a-z0-9-]+(\.[A-Za-z0-9-]+)+")

VARIABLES: tuple[dict[str, Any], ...] = (
    {
        "name": "ANTHROPIC_API_KEY",
        "description": "For delegated runs; everything else works without.",
        "format": "string",
        "isRequired": False,
        "isSecret": True,
    },
    {
        "name": "DEEP_AGENT_ROOT",
        "description": "Directory of the file tools; without it files are kept in threads.",
        "format": "filepath",
        "isRequired": False,
    },
    {
        "name": "DEEP_AGENT_MODEL",
        "description": "Model of delegated runs.",
        "format": "string",
        "isRequired": False,
        "placeholder": "anthropic:claude-sonnet-5-5",
    },
)


def server_entry(namespace: str, project: Project, *more: dict[str, Any]) -> dict[str, Any]:
    """Return the entry.

    Args:
        namespace: In reverse order of a domain, such as `io.github.OWNER`.
        project: What is published.
        more: Further packages, such as that of `mcpb_package`.

    Raises:
        ValueError: The namespace is none.
    """
    if not NAMESPACE.fullmatch(namespace):
        raise ValueError(f"{namespace!r} is no namespace; write one such as io.github.OWNER")
    package = {
        "registryType": "pypi",
        "identifier": project.name,
        "version": project.version,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "environmentVariables": list(VARIABLES),
    }
    return {
        "$schema": SCHEMA,
        "name": f"{namespace}/{project.name}",
        "title": "Deep Agent",
        "description": DESCRIPTION,
        "version": project.version,
        "packages": [package, *more],
    }


def mcpb_package(bundle: Path, url: str, project: Project) -> dict[str, Any]:
    """Return the package of a bundle that can be had at a URL."""
    return {
        "registryType": "mcpb",
        "identifier": url,
        "version": project.version,
        "fileSha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
        "transport": {"type": "stdio"},
    }


def main(arguments: list[str]) -> None:
    """Print the entry, and on stderr what the registry would miss."""
    project = Project.read()
    match arguments:
        case [namespace]:
            more: list[dict[str, Any]] = []
        case [namespace, "--mcpb", bundle, url]:
            more = [mcpb_package(Path(bundle), url, project)]
        case _:
            sys.exit(__doc__)
    try:
        entry = server_entry(namespace, project, *more)
    except ValueError as error:
        sys.exit(str(error))
    marker = f"mcp-name: {entry['name']}"
    if marker not in (REPO / "README.md").read_text(encoding="utf-8"):
        print(f"README.md lacks the line <!-- {marker} -->; publish it first.", file=sys.stderr)
    print(json.dumps(entry, indent=2, ensure_ascii=False))
