"""Other implementations of MCP clients; they are fetched from npm and PyPI, so only when asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.environments import node_packages, older_python
from tests.clients.tours import Place
from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import Setup

WANTED = "DEEP_AGENT_CLIENT_TESTS"
ENVIRONMENTS = "DEEP_AGENT_CLIENT_ENVS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(WANTED) == "1":
        return
    reason = f"fetches other clients from npm and PyPI: set {WANTED}=1 to run it"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def environments(pytestconfig: pytest.Config) -> Path:
    """Where the clients are installed, and stay for the next time."""
    given = os.environ.get(ENVIRONMENTS)
    return Path(given) if given else pytestconfig.cache.mkdir("clients")


@pytest.fixture(scope="session")
def node(environments: Path) -> Path:
    """The `node_modules` with the TypeScript clients and a Node that runs them."""
    return node_packages(environments)


@pytest.fixture(scope="session")
def python_1(environments: Path) -> Path:
    """The interpreter of an environment with the Python SDK 1.x."""
    return older_python(environments)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server over HTTP, and how to start one on stdio; `edit_file` needs approval on both."""
    over_http = _setup(tmp_path_factory.mktemp("http"))
    with over_http.serving() as server:
        yield Place(_setup(tmp_path_factory.mktemp("stdio")), over_http, server)


def _setup(folder: Path) -> Setup:
    setup = Setup(folder, flags=["--approve", "edit_file"], script=SCRIPT)
    setup.skill("greeting", "How to greet people.", "Say hello first.")
    return setup
