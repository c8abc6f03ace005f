"""A tour of the server, the same for every client. A program runs it and prints JSON results."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.cells import Era
from tests.e2e.servers import HttpServer, Setup

__all__ = ["Place", "expect_tour", "take"]

HERE = Path(__file__).parent
TOUR_SECONDS = 120


@dataclass(frozen=True)
class Place:
    """The servers of a tour: a new server on stdio, or the running one."""

    on_stdio: Setup
    over_http: Setup
    server: HttpServer

    def setup(self, transport: str) -> Setup:
        return self.on_stdio if transport == "stdio" else self.over_http

    def target(self, transport: str) -> dict[str, Any]:
        """Return the data with which a program connects."""
        if transport != "stdio":
            key = "sse_url" if transport == "sse" else "url"
            return {"transport": transport, "url": self.server.listening[key]}
        command, *args = self.on_stdio.command("stdio")
        where = {"env": self.on_stdio.environment(), "cwd": str(self.on_stdio.place)}
        return {"transport": "stdio", "command": command, "args": args, **where}


def take(command: Sequence[str | Path], target: dict[str, Any], cwd: Path = HERE) -> Any:
    """Run a program with the target as its last argument; return the JSON it prints."""
    done = subprocess.run(
        [*map(str, command), json.dumps(target)],
        capture_output=True,
        text=True,
        timeout=TOUR_SECONDS,
        cwd=cwd,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return json.loads(done.stdout)


def expect_tour(seen: dict[str, Any], root: Path, era: Era) -> None:
    """Check the results of a client's tour, and the files after it."""
    assert seen.get("protocol", era) == era and seen["progress"]
    assert seen["server"] == "deep-agent-mcp"
    assert {"write_todos", "read_file", "task", "reply"} <= set(seen["tools"])
    assert len(seen["tools"]) <= 14
    thread_id = seen["thread_id"]
    assert thread_id.startswith("thr_")
    assert seen["todos"]["counts"]["in_progress"] == 1
    assert seen["todos"]["thread_id"] == thread_id
    assert "a line of the tour" in seen["read"]
    assert seen["delegated"]["status"] == "done"
    assert seen["delegated"]["answer"] == "The note is written."
    assert seen["delegated"]["thread_id"] == thread_id
    assert "look at it" in seen["resource"]
    assert "Say hello first." in seen["prompt"]
    assert "no such file" in seen["error"]
    (form,) = seen["asked"]
    assert "edit_file" in form["message"]
    assert form["requestedSchema"]["properties"]["decision"]["enum"][0] == "approve"
    assert seen["approved"]["status"] == "done"
    assert seen["approved"]["answer"] == "The note is changed."
    assert (root / "note.txt").read_text() == "second\n"
