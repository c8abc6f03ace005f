"""Installs other clients, each version named here, once per directory.

`python -m tests.clients.environments DIRECTORY` does it before the tests that need them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

__all__ = ["node_packages", "older_python"]

NODE_PACKAGES = (
    "node@22.23.3",  # new enough for all of them
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/inspector@2.12.0",
)
PYTHON_PACKAGE = "mcp==1.30.0"

INSTALL_SECONDS = 300


def node_packages(place: Path) -> Path:
    """Return the `node_modules` directory with everything in it."""
    folder = place / "node"
    _once(folder, NODE_PACKAGES, ["npm", "install", "--no-audit", "--no-fund", "--prefix", "."])
    return folder / "node_modules"


def older_python(place: Path) -> Path:
    """Return the interpreter of an environment with the SDK 1.x."""
    folder = place / "python"
    python = folder / "env" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not python.exists():
                _run([sys.executable, "-m", "venv", "env"], folder)
    _once(folder, [PYTHON_PACKAGE], [str(python), "-m", "pip", "install", "--quiet"])
    return python


def _once(folder: Path, packages: Sequence[str], command: Sequence[str]) -> None:
    """Install unless the same packages were installed there before."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "installed.json"
    with FileLock(folder / "lock"):  # other test processes want them too
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
    node_packages(Path(sys.argv[1]))
    older_python(Path(sys.argv[1]))
