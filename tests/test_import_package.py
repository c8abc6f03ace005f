"""One import package: it can be used where a user has modules of the same names as its folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


def python(
    place: Path, *arguments: str, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path) if path else "", "HOME": str(place)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env=env, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder of a user whose modules have the names of our folders."""
    for name in ("server", "harness", "skills", "tools"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the user\\'s {name} was run')\n")
    return tmp_path


def test_it_is_imported_beside_modules_named_like_its_folders(project: Path) -> None:
    code = (
        "from deep_agent_mcp import create_deep_agent, tool\n"
        "from deep_agent_mcp.harness import create_deep_agent as same\n"
        "import deep_agent_mcp.server.app, sys\n"
        "assert not {'server', 'harness', 'skills', 'tools'} & {*sys.modules}\n"
        "print(create_deep_agent is same, create_deep_agent.__module__)\n"
        "import server"
    )
    done = python(project, "-c", code, path=CHECKOUT)
    assert done.stdout.split() == ["True", "deep_agent_mcp.harness.deep_agent"], done.stderr
    assert done.stderr.strip() == "the user's server was run"  # their own stays what it is


def test_its_command_is_run_beside_modules_named_like_its_folders(project: Path) -> None:
    done = python(project, "-m", "deep_agent_mcp", "--version", path=CHECKOUT)
    assert done.returncode == 0, done.stderr
    assert "deep-agent-mcp" in done.stdout


@pytest.mark.parametrize("folder", ["harness", "server"])
def test_a_folder_imported_by_its_bare_name_says_how_to_import_it(folder: str) -> None:
    done = python(CHECKOUT, "-c", f"import {folder}")
    assert done.returncode == 1
    assert f"import deep_agent_mcp.{folder} instead" in done.stderr


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    import deep_agent_mcp

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = deep_agent_mcp.nothing
    assert "create_deep_agent" in dir(deep_agent_mcp)
