"""Installs a package of Python files into a directory: what `pip install` leaves, without pip."""

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
    """Write modules, and the metadata that say which entry points they have.

    Args:
        place: A directory for `sys.path`.
        name: Of the distribution.
        files: Text by path.
        plugins: By group: entry points by name, as `module:attribute`.
        version: Of the distribution.
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
    """Let this process import from a directory; its modules are forgotten after the test."""
    monkeypatch.syspath_prepend(place)
    importlib.invalidate_caches()
    names = {one.stem for one in place.iterdir()} - set(sys.modules)
    for name in names:
        # What is set and taken back afterwards is then gone, whoever has imported it meanwhile.
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]
