"""Fixtures: one browser and one server for all tests of a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.servers import HttpServer, Setup
from tests.viewer.browser import Browser, browsing, need_browser
from tests.viewer.scripts import SCRIPT

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class ViewerSetup(Setup):
    """A server with a tool that asks a person."""

    def command(self, transport: str) -> list[str]:
        return ["tests.viewer.serving" if one == "deep_agent_mcp" else one
                for one in super().command(transport)]  # fmt: skip


@dataclass
class Served:
    """A server, with calls of its tools."""

    setup: Setup
    server: HttpServer
    token: str = ""

    @property
    def base(self) -> str:
        return str(self.server.listening["url"]).removesuffix("/mcp")

    @property
    def page(self) -> str:
        return f"{self.base}/ui"

    def call(self, tool: str, **args: Any) -> dict[str, Any]:
        """Call a tool like another client; return the structured content."""
        params = {"name": tool, "arguments": args, "_meta": META}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        with httpx2.Client(timeout=60, verify=False) as http:  # loading CA certificates is slow
            text = http.post(f"{self.base}/mcp", json=body, headers=headers).text
        if not text.startswith("{"):
            text = [line for line in text.splitlines() if line.startswith("data: ")][-1][6:]
        answer = json.loads(text)
        assert "result" in answer, answer
        return answer["result"].get("structuredContent") or answer["result"]

    def begin(self, goal: str) -> str:
        """Start a run and return its id."""
        return str(self.call("task", goal=goal, wait_seconds=0)["run_id"])

    def status(self, run_id: str) -> str:
        """Wait until a run pauses or ends; return its status."""
        status = "running"
        while status == "running":
            status = str(self.call("wait", run_id=run_id, wait_seconds=20)["status"])
        return status


def viewer_setup(place: Path, *flags: str) -> Setup:
    guarded = ["--approve", "write_file", "--approve", "pay"]
    return ViewerSetup(place, flags=[*guarded, *flags], script=SCRIPT)


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    need_browser()
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The window with an empty page; errors on its console fail the test."""
    window.go("about:blank")
    window.complaints()
    yield window
    window.leave_frame()
    assert window.complaints() == []


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    setup = viewer_setup(tmp_path_factory.mktemp("served"))
    with setup.serving() as server:
        yield Served(setup, server)


@pytest.fixture
def served(serving: Served) -> Served:
    """A server without tokens, whose `write_file` calls need approval; its root is empty."""
    for path in serving.setup.root.iterdir():
        path.unlink()
    return serving
