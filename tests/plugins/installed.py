"""Installation of a package into a directory, with the same files as `pip install`, without pip."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    place: Path,
    name: str,
    files: Mapping[str, str],
    plugins: Mapping[str, Mapping[str, str]],
    version: str = "1.0",
) -> None:
    """Write modules, and metadata with their entry points.

    Args:
        place: A directory for `sys.path`.
        name: Name of the distribution.
        files: Text of files by path.
        plugins: Entry points by group and name, as `module:attribute`.
        version: Version of the distribution.
    """
    for path, text in files.items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    info = place / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, points in plugins.items()
        for line in [f"[deep_agent_mcp.{group}]", *(f"{key} = {of}" for key, of in points.items())]
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def on_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a directory to `sys.path` for a test; its modules are removed after the test."""
    monkeypatch.syspath_prepend(place)
    importlib.invalidate_caches()
    names = {one.stem for one in place.iterdir()} - set(sys.modules)
    for name in names:
        # `setitem` removes the module after the test, whoever has imported it meanwhile.
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]
