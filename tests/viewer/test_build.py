"""The page that is delivered is what its sources give."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deep_agent_mcp.server.viewer import viewer_html

STUDIO = Path(__file__).resolve().parents[2] / "server" / "viewer" / "page"
BUILD = "run `npm run build` in server/viewer/page/"


def test_the_committed_page_is_what_the_sources_give(tmp_path: Path) -> None:
    if shutil.which("node") is None or not (STUDIO / "node_modules").is_dir():
        pytest.skip("no Node, or no packages: run `npm ci` in server/viewer/page/")
    page = tmp_path / "studio.html"
    env = {**os.environ, "STUDIO_PAGE": str(page)}
    subprocess.run(
        ["npm", "run", "--silent", "build"], cwd=STUDIO, env=env, check=True, timeout=120
    )
    assert page.read_text(encoding="utf-8") == viewer_html(), BUILD


def test_packages_come_from_no_registry_of_ours() -> None:
    locked = (STUDIO / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in locked and locked.count('"integrity"') > 20
