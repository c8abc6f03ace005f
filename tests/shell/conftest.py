"""Fixtures of the shell's tests."""

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from deep_agent_mcp.harness.shell.policies import ExecutionPolicy
from tests.shell.support import Witness, policy_of

if os.name == "nt":
    collect_ignore_glob = ["test_*.py"]  # shells need a POSIX system


@pytest.fixture(params=["host", "bubblewrap"])
def policy(request: pytest.FixtureRequest) -> ExecutionPolicy:
    return policy_of(request.param)


@pytest.fixture
def witness(tmp_path: Path) -> Generator[Callable[[], Witness]]:
    """A factory for witnesses in the workspace, which is `tmp_path`."""
    made: list[Witness] = []

    def make() -> Witness:
        made.append(Witness(tmp_path / f"witness{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        one.close()
