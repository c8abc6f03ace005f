"""A link that changes between the policy's decision and the access leads nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.backends.base import Backend
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.directory.realpath_tree import RealpathTree
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import ToolCall
from deep_agent_mcp.harness.policy import Policy, Rule
from tests.loop.models import Turns, call

pytestmark = pytest.mark.anyio


class Flipping(DirectoryBackend):
    """A directory in which another program replaces a link as soon as it was resolved."""

    def real_path(self, path: str) -> str:
        real = super().real_path(path)
        if path.startswith("/way"):
            way = self.root / "way"
            way.unlink()
            way.symlink_to("secret")
        return real


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("open", "secret"):
        (root / name).mkdir(parents=True)
    (root / "open" / "a.txt").write_text("needle\n")
    (root / "secret" / "a.txt").write_text("needle of the secret\n")
    (root / "secret" / "key.pem").write_text("needle of the key\n")
    (root / "way").symlink_to("open")
    return root


def alone(backend: Backend) -> tuple[Backend, str]:
    return backend, ""


def mounted(backend: Backend) -> tuple[Backend, str]:
    return CompositeBackend(StateBackend(), {"/disk": backend}), "/disk"


Layout = Callable[[Backend], tuple[Backend, str]]


def agent_on(backend: Backend, at: str) -> Agent:
    policy = Policy((Rule("deny", path=f"{at}/secret/**"), Rule("deny", path=f"{at}/secret")))
    return create_deep_agent(Turns(), backend=backend, policy=policy)


@pytest.mark.parametrize("layout", [alone, mounted])
@pytest.mark.parametrize(
    "use",
    [
        call("1", "read_file", path="/way/a.txt"),
        call("1", "ls", path="/way"),
        call("1", "glob", pattern="*", path="/way"),
        call("1", "grep", pattern="needle", path="/way"),
        call("1", "grep", pattern="needle", path="/way/a.txt"),
        call("1", "write_file", path="/way/new.txt", content="x"),
        call("1", "write_file", path="/way/below/new.txt", content="x"),
    ],
    ids=lambda one: f"{one.name} {one.args['path']}",
)
async def test_no_file_tool_reaches_what_a_replaced_link_leads_to(
    use: ToolCall, layout: Layout, root: Path
) -> None:
    backend, at = layout(Flipping(root))
    there = ToolCall(use.id, use.name, {**use.args, "path": f"{at}{use.args['path']}"})
    (result,) = (await agent_on(backend, at).adrive([there])).results
    assert result.status == "error" and "changed by someone else" in result.text, result.text
    assert "key.pem" not in result.text and "secret" not in result.text
    assert sorted(one.name for one in (root / "secret").iterdir()) == ["a.txt", "key.pem"]


@pytest.mark.parametrize("tree", [None, RealpathTree], ids=["descriptors", "real paths"])
async def test_links_that_stay_as_they_are_work_under_a_policy(
    tree: type[RealpathTree] | None, root: Path
) -> None:
    backend = DirectoryBackend(root) if tree is None else DirectoryBackend(root, tree=tree)
    agent = agent_on(backend, "")
    done = await agent.adrive(
        [
            call("1", "read_file", path="/way/a.txt"),
            call("2", "ls", path="/way"),
            call("3", "ls", path="/"),
            call("4", "glob", pattern="*.txt", path="/way"),
            call("5", "grep", pattern="needle", path="/way"),
            call("6", "write_file", path="/way/below/new.txt", content="x"),
        ]
    )
    assert [one.status for one in done.results] == ["success"] * 6
    read, listed, top, found, searched, _ = [one.text for one in done.results]
    assert "needle" in read and "/way/a.txt" in found and "/way/a.txt" in searched
    assert "/way/a.txt" in listed and "/way/" in top  # a link to a directory is listed as one
    assert (root / "open" / "below" / "new.txt").read_text() == "x"
