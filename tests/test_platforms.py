"""What must hold on systems that this suite may not be running on."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

IMPORTS = """
import builtins, importlib, pkgutil, sys

POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "termios", "tty"}
ALONE = (".transports.stdio", ".shell.supervisor", ".descriptor_tree")  # not for Windows
found, original = [], builtins.__import__

def watched(name, namespace=None, *more):
    importer = (namespace or {}).get("__name__", "")
    if name in POSIX and importer.startswith("deep_agent_mcp."):
        found.append(f"{importer} imports {name}")
    return original(name, namespace, *more)

builtins.__import__ = watched
import deep_agent_mcp.harness, deep_agent_mcp.server
for package in (deep_agent_mcp.harness, deep_agent_mcp.server):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(ALONE):
            importlib.import_module(module.name)
loaded = [name for name in sys.modules if name.startswith("deep_agent_mcp.")]
found += [f"{name} is loaded at the start" for name in loaded if name.endswith(ALONE)]
assert len(loaded) > 300 and not found, found
"""


def test_no_module_needs_posix_to_be_imported(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{IMPORTS}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
