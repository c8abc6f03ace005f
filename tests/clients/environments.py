"""Installation of other clients, with pinned versions, once per directory.

`python -m tests.clients.environments DIRECTORY` installs them before the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

__all__ = [
    "claude_code",
    "codex",
    "fastmcp_python",
    "gemini",
    "node_packages",
    "older_python",
    "opencode",
]

NODE_PACKAGES = (
    "node@22.23.3",  # new enough for all of them
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/inspector@2.12.0",
)
CLAUDE_CODE = "@anthropic-ai/claude-code@2.1.332"
CODEX = "@openai/codex@0.169.0"
GEMINI = "@google/gemini-cli@0.61.0"
OPENCODE = "opencode-ai@1.18.33"
OLDER_PYTHON = ("mcp==1.30.0", "langchain-mcp-adapters==0.3.2")
FASTMCP = ("fastmcp==4.2.3",)

INSTALL_SECONDS = 900

_UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet")
_NPM = ("npm", "install", "--no-audit", "--no-fund", "--prefix", ".")


def node_packages(place: Path) -> Path:
    """Install the Node packages and return their `node_modules` directory."""
    folder = place / "node"
    _once(folder, NODE_PACKAGES, _NPM)
    return folder / "node_modules"


def claude_code(place: Path) -> Path:
    """Install Claude Code and return its program, which is one file for each platform."""
    scope = _unscripted(place / "claude", CLAUDE_CODE) / "@anthropic-ai"
    (program,) = [one for one in scope.glob("claude-code-*/claude*") if one.suffix in ("", ".exe")]
    return program


def codex(place: Path) -> Path:
    """Install Codex and return its program, which is one file for each platform."""
    modules = _unscripted(place / "codex", CODEX)
    return next((modules / "@openai").glob("codex-*/vendor/*/bin/codex*"))


def gemini(place: Path) -> Path:
    """Install Gemini CLI and return its script for Node."""
    modules = _unscripted(place / "gemini", GEMINI)
    return modules / "@google" / "gemini-cli" / "bundle" / "gemini.js"


def opencode(place: Path) -> Path:
    """Install opencode and return its program, which is one file for each platform."""
    modules = _unscripted(place / "opencode", OPENCODE)
    return min(modules.glob("opencode-*-*/bin/opencode*"), key=lambda one: len(str(one)))


def _unscripted(folder: Path, package: str) -> Path:
    """Install a package without running its scripts; return the directory of modules."""
    _once(folder, [package], [*_NPM, "--ignore-scripts"])
    return folder / "node_modules"


def older_python(place: Path) -> Path:
    """Return the interpreter of an environment with the SDK 1.x and libraries that use it."""
    return _python(place / "python", OLDER_PYTHON)


def fastmcp_python(place: Path) -> Path:
    """Return the interpreter of an environment with FastMCP."""
    return _python(place / "fastmcp", FASTMCP)


def _python(folder: Path, packages: Sequence[str]) -> Path:
    python = folder / "env" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not python.exists():
                _run([sys.executable, "-m", "venv", "env"], folder)
    _once(folder, packages, [*_UV, "--python", str(python)])
    return python


def _once(folder: Path, packages: Sequence[str], command: Sequence[str]) -> None:
    """Install packages, unless the same packages are installed there already."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "installed.json"
    with FileLock(folder / "lock"):  # other test processes may install them, too
        if done.exists() and json.loads(done.read_text()) == list(packages):
            return
        _run([*command, *packages], folder)
        done.write_text(json.dumps(list(packages)))


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"


if __name__ == "__main__":
    for install in (node_packages, older_python, fastmcp_python, claude_code):
        install(Path(sys.argv[1]))
