"""The template of a plugin: its own tests pass once it is installed."""

import os
import sys
import tomllib
from pathlib import Path

from tests.fork_server import environment, run
from tests.plugins.installed import install

TEMPLATE = Path(__file__).parents[2] / "examples" / "plugin"


def test_its_own_tests_pass(tmp_path: Path) -> None:
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    points = {
        group.removeprefix("deep_agent_mcp."): names
        for group, names in project["entry-points"].items()
    }
    install(tmp_path, project["name"], {}, points, project["version"])
    env = environment(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(TEMPLATE / "src"), env["PYTHONPATH"]])
    words = ["-q", "-p", "no:cacheprovider", str(TEMPLATE / "tests")]
    command = [sys.executable, "-m", "pytest", *words]
    ended = run(command, env | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout
