"""Builds the bundle that desktop apps install with a click: `python .ci/release bundle [OUT]`.

A bundle (`.mcpb`, manifest 0.4) is a zip with a manifest. Its server type is `uv`: the app brings
uv, which makes an environment from `pyproject.toml`, so that nobody needs Python. Two runs over one
checkout give the same bytes.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

from deep_agent_mcp.server.doctor.findings import KNOWN_CLIENTS
from deep_agent_mcp.server.doctor.handshakes import server_command
from deep_agent_mcp.server.doctor.wire import Wire
from deep_agent_mcp.server.settings.sources import load_settings
from release.project import REPO, Project

__all__ = ["asked_tools", "build", "manifest"]

FOLDERS = ("deep_agent_mcp", "harness", "server", "skills")
FILES = ("README.md", "pyproject.toml")
LEFT_OUT = ("__pycache__", ".pyc")
PAGE = REPO / "server" / "viewer" / "page"  # its sources are for contributors
WRITTEN_AT = (1980, 1, 1, 0, 0, 0)
TOOL_CHARS = 100

MAIN = '''\
"""Starts the server inside a bundle."""

import os

from deep_agent_mcp.server.cli.main import main

# Some apps pass the names of settings that a user left empty, in place of nothing.
for name, value in list(os.environ.items()):
    if value.startswith("${user_config."):
        del os.environ[name]

main()
'''

USER_CONFIG: dict[str, dict[str, Any]] = {
    "api_key": {
        "type": "string",
        "title": "Anthropic API key",
        "description": "For delegated runs (`task`). Everything else works without one.",
        "sensitive": True,
        "required": False,
        "default": "",
    },
    "root": {
        "type": "directory",
        "title": "Directory of the file tools",
        "description": "What may be read and changed. Empty: files are kept inside each thread.",
        "required": False,
        "default": "",
    },
    "skills": {
        "type": "directory",
        "title": "Your skills",
        "description": "A directory of skills, besides those that ship: folders with a SKILL.md.",
        "required": False,
        "default": "",
    },
    "agents": {
        "type": "directory",
        "title": "Your subagents",
        "description": "A directory of subagents: one Markdown file each.",
        "required": False,
        "default": "",
    },
    "model": {
        "type": "string",
        "title": "Model",
        "description": "Of delegated runs: anthropic:claude-sonnet-5-5, say. Empty: the default.",
        "required": False,
        "default": "",
    },
}

VARIABLES = {
    "ANTHROPIC_API_KEY": "api_key",
    "DEEP_AGENT_ROOT": "root",
    "DEEP_AGENT_SKILLS": "skills",
    "DEEP_AGENT_AGENTS": "agents",
    "DEEP_AGENT_MODEL": "model",
}
"""Environment variable -> setting. An empty variable is no setting to the server, where an empty
argument would be one."""


def manifest(project: Project, tools: list[dict[str, str]]) -> dict[str, Any]:
    """Return the manifest of a bundle."""
    return {
        "manifest_version": "0.4",
        "name": project.name,
        "display_name": "Deep Agent",
        "version": project.version,
        "description": project.description,
        "author": {"name": f"The {project.name} authors"},
        "server": {
            "type": "uv",
            "entry_point": "main.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "main.py"],
                "env": {name: f"${{user_config.{key}}}" for name, key in VARIABLES.items()},
            },
        },
        "tools": tools,
        "prompts_generated": True,
        "keywords": ["agent", "skills", "todos", "files", "memory"],
        # Delegated runs send what they work on to the model.
        "privacy_policies": ["https://www.anthropic.com/legal/privacy"],
        "compatibility": {
            "platforms": ["darwin", "linux", "win32"],
            "runtimes": {"python": project.requires_python},
        },
        "user_config": USER_CONFIG,
    }


async def listed_tools() -> list[dict[str, str]]:
    """Return names and short descriptions of the server's tools."""
    tools = await asked_tools()
    return [{"name": one["name"], "description": _first(one["description"])} for one in tools]


async def asked_tools() -> list[dict[str, Any]]:
    """Return the tools of the server, asked as a desktop app asks it."""
    client = KNOWN_CLIENTS["claude-desktop"]
    with tempfile.TemporaryDirectory() as place:
        env = {**os.environ, "PYTHONPATH": str(REPO)}
        command = server_command([], Path(place, "state"), load_settings({}, {}))
        async with Wire.to(command, client, env, Path(place, "log")) as wire:
            info = {"name": client.calls_itself, "version": "1"}
            hello = {"protocolVersion": client.protocol, "capabilities": {}, "clientInfo": info}
            await wire.request("initialize", hello)
            await wire.notify("notifications/initialized")
            return (await wire.request("tools/list", {}))["tools"]


def build(out: Path) -> Path:
    """Write the bundle into a directory and return it."""
    project = Project.read()
    about = manifest(project, anyio.run(listed_tools))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{project.name}-{project.version}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        _add(bundle, "manifest.json", json.dumps(about, indent=2, ensure_ascii=False).encode())
        _add(bundle, "main.py", MAIN.encode())
        for file in _sources():
            _add(bundle, file.relative_to(REPO).as_posix(), file.read_bytes())
    return path


def _sources() -> Iterator[Path]:
    for name in FILES:
        yield REPO / name
    for folder in FOLDERS:
        for file in sorted((REPO / folder).rglob("*")):
            parts = file.relative_to(REPO).parts
            hidden = any(part.startswith(".") or part.endswith(LEFT_OUT) for part in parts)
            if file.is_file() and not hidden and not file.is_relative_to(PAGE):
                yield file


def _add(bundle: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, WRITTEN_AT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    bundle.writestr(entry, data)


def _first(description: str) -> str:
    """Return the first sentence, for people who look a bundle over."""
    sentence = description.splitlines()[0].partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= TOOL_CHARS else sentence[: TOOL_CHARS - 1] + "…"
