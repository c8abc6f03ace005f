"""Tests with other MCP clients, which only run on request: they are installed from npm and PyPI.

With `DEEP_AGENT_CLIENT_REPLICAS=3`, HTTP clients connect to three servers on one journal, through a
balancer that passes each request to the next server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.clients.environments import (
    claude_code,
    codex,
    fastmcp_python,
    gemini,
    node_packages,
    older_python,
    opencode,
)
from tests.clients.tours import Place
from tests.databases import made_database
from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import HttpServer, Setup
from tests.replicas.machines import Machine, behind_a_balancer
from tests.replicas.servers import journal_url

WANTED = "DEEP_AGENT_CLIENT_TESTS"
REPLICAS = "DEEP_AGENT_CLIENT_REPLICAS"
FLAGS = ("--approve", "edit_file")
LONG = {"match": "six seconds", "agents": {"main": [{"text": "At last.", "delay": 6}]}}
TOUR = {**SCRIPT, "runs": [*SCRIPT["runs"], LONG]}
BUDGETS = {"DEEP_AGENT_WAIT_BUDGETS": "sixty=1"}
"""A client of this name gives up after five seconds."""

ENVIRONMENTS = "DEEP_AGENT_CLIENT_ENVS"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(WANTED) == "1":
        return
    reason = f"fetches other clients from npm and PyPI: set {WANTED}=1 to run it"
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def environments(pytestconfig: pytest.Config) -> Path:
    """The directory of the installed clients, which is kept for the next run."""
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


@pytest.fixture(scope="session")
def fastmcp(environments: Path) -> Path:
    """The interpreter of an environment with FastMCP."""
    return fastmcp_python(environments)


@pytest.fixture(scope="session")
def claude(environments: Path) -> Path:
    """The program of Claude Code."""
    return claude_code(environments)


@pytest.fixture(scope="session")
def coding_hosts(environments: Path, node: Path) -> dict[str, list[Path]]:
    """The commands of coding agents, by their names in `install`."""
    return {
        "codex": [codex(environments)],
        "gemini": [node / ".bin" / "node", gemini(environments)],
        "opencode": [opencode(environments)],
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server over HTTP, and the setup of one on stdio; `edit_file` needs approval on both."""
    over_http, on_stdio = (tmp_path_factory.mktemp(one) for one in ("http", "stdio"))
    count = int(os.environ.get(REPLICAS, "0"))
    with ExitStack() as stack:
        if count:
            setups, server = stack.enter_context(_replicas(over_http, count))
        else:
            setups = [_setup(Setup(over_http, FLAGS, BUDGETS, script=TOUR))]
            server = stack.enter_context(setups[0].serving())
        yield Place(_setup(Setup(on_stdio, FLAGS, BUDGETS, script=TOUR)), setups[0], server)


@contextmanager
def _replicas(folder: Path, count: int) -> Iterator[tuple[Sequence[Setup], HttpServer]]:
    with contextmanager(made_database)() as database:
        env = {"DEEP_AGENT_JOURNAL": journal_url(database), **BUDGETS}
        flags = [*FLAGS, "--replicas", "--shared-root"]
        files = folder / "files"
        files.mkdir()
        machines: list[Machine] = []
        for number in range(count):
            own = folder / str(number)
            own.mkdir()
            made = Machine(own, flags, env, TOUR, files=files)
            _setup(made)
            machines.append(made)
        with behind_a_balancer(folder, machines) as server:
            yield machines, server


def _setup(setup: Setup) -> Setup:
    setup.skill("greeting", "How to greet people.", "Say hello first.")
    return setup
