"""What our users' clients are built with, each on a tour of a real server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.cells import Era, cells_of
from tests.clients.tours import HERE, Place, expect_tour, take
from tests.e2e.servers import Setup

pytestmark = pytest.mark.timeout(300)  # the first one waits for the installation

ERA = ("transport", "era")


@pytest.mark.parametrize(ERA, cells_of("Python SDK 1"))
def test_the_python_sdk_1(transport: str, era: Era, place: Place, python_1: Path) -> None:
    seen = take([python_1, HERE / "tour.py"], place.target(transport))
    expect_tour(seen, place.setup(transport).root, era)


@pytest.mark.parametrize(ERA, cells_of("LangChain"))
def test_langchains_adapters(transport: str, era: Era, place: Place, python_1: Path) -> None:
    seen = take([python_1, HERE / "tour_langchain.py"], place.target(transport))
    expect_tour(seen, place.setup(transport).root, era)


@pytest.mark.parametrize(ERA, cells_of("FastMCP"))
def test_fastmcp(transport: str, era: Era, place: Place, fastmcp: Path) -> None:
    mode = "legacy" if era == "2025-11-25" else "auto"
    seen = take([fastmcp, HERE / "tour_fastmcp.py", mode], place.target(transport))
    expect_tour(seen, place.setup(transport).root, era)


@pytest.mark.parametrize(ERA, cells_of("TypeScript SDK 1"))
def test_the_typescript_sdk_1(transport: str, era: Era, place: Place, node: Path) -> None:
    seen = take([*node_program(node, "tour.mjs"), "v1"], place.target(transport))
    expect_tour(seen, place.setup(transport).root, era)


@pytest.mark.parametrize(ERA, cells_of("TypeScript SDK 2"))
def test_the_typescript_sdk_2(transport: str, era: Era, place: Place, node: Path) -> None:
    version = "v2" if era == "2025-11-25" else "v2-modern"
    seen = take([*node_program(node, "tour.mjs"), version], place.target(transport))
    expect_tour(seen, place.setup(transport).root, era)


@pytest.mark.parametrize("version", ["v1", "v2-modern"])
def test_a_client_that_gives_up_soon_gets_the_answer_of_a_long_run_and_all_news(
    version: str, place: Place, node: Path
) -> None:
    """Calls time out after five seconds, the run takes six; the old era is cut off, too."""
    seen = take([*node_program(node, "features.mjs"), version], place.target("http"))
    assert seen["statuses"][0] == "running" and seen["statuses"][-1] == "done"
    assert seen["answer"] == "At last."
    assert set(seen["updates"]) == {"threads://recent"}
    if version == "v1":
        assert seen["resumed"], "the stream was not resumed by its Last-Event-ID"
        assert seen["cut"]["answer"] == "That was a moment."
        assert seen["task"][0] == "taskCreated"
        assert seen["task"][-1]["answer"] == "That was a moment."


def node_program(node: Path, name: str) -> list[Path]:
    return [node / ".bin" / "node", HERE / name, node]


@pytest.mark.parametrize(ERA, cells_of("Inspector"))
def test_the_inspector(transport: str, era: Era, place: Place, node: Path) -> None:
    inspector = Inspector(node, place, transport, era)
    tools = inspector("tools/list", "--strict")["tools"]
    assert {"write_todos", "task"} <= {one["name"] for one in tools}
    todos = json.dumps([{"content": "look at it", "status": "in_progress"}])
    listed = inspector.call("write_todos", f"todos={todos}")
    thread_id = listed["structuredContent"]["thread_id"]
    here = f"thread_id={thread_id}"
    delegated = inspector.call("task", "goal=write a note", here)
    assert delegated["structuredContent"]["answer"] == "The note is written."
    resource = inspector("resources/read", "--uri", f"thread://{thread_id}/todos")
    assert "look at it" in resource["contents"][0]["text"]
    if era != "2025-11-25":
        return  # each request is a process, and the rest has been looked at in the other era
    inspector.call("write_file", "path=/by-hand.txt", "content=by hand", here)
    read = inspector.call("read_file", "path=/by-hand.txt", here)
    assert "by hand" in read["content"][0]["text"]
    prompt = inspector("prompts/get", "--prompt-name", "greeting")
    assert "Say hello first." in json.dumps(prompt)


class Inspector:
    """The Inspector's command line: one process, and on stdio one server, for each request."""

    def __init__(self, node: Path, place: Place, transport: str, era: Era) -> None:
        self._node = node
        self._era = "legacy" if era == "2025-11-25" else "modern"
        self._target = place.target(transport)
        self._setup: Setup = place.setup(transport)

    def __call__(self, method: str, *options: str) -> Any:
        main = self._node / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
        command = [str(self._node / ".bin" / "node"), str(main / "index.js"), "--cli"]
        if self._target["transport"] == "stdio":
            command += [self._target["command"], *self._target["args"]]
        else:
            command += [self._target["url"], "--transport", self._target["transport"]]
        done = subprocess.run(
            [*command, "--protocol-era", self._era, "--method", method, *options],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self._setup.place,
            env={**os.environ, **self._setup.environment()},
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
        return json.loads(done.stdout)

    def call(self, tool: str, *pairs: str) -> Any:
        arguments = [part for pair in pairs for part in ("--tool-arg", pair)]
        result = self("tools/call", "--tool-name", tool, *arguments)
        assert not result.get("isError"), result
        return result
