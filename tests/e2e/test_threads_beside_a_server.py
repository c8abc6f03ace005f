"""`deep-agent-mcp threads …` on the state directory of a server that is at work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.e2e.servers import Setup, call, connected
from tests.fork_server import run

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/a.txt", "content": "asked"}}
SCRIPT = {
    "name": "beside",
    "runs": [
        {"match": "take long", "agents": {"main": [{"text": "At last.", "delay": 600}]}},
        {"match": "ask", "agents": {"main": [{"tool_calls": [WRITE]}, {"text": "Was allowed."}]}},
    ],
    "agents": {"*": [{"text": "Nothing to do."}]},
}


async def threads(setup: Setup, *args: str) -> subprocess.CompletedProcess[str]:
    where = ["--state-dir", str(setup.state), "--root", str(setup.root)]

    command = [sys.executable, "-m", "deep_agent_mcp", "threads", *where, *args]
    return await anyio.to_thread.run_sync(run, command, setup.environment(), setup.place)


async def test_a_thread_is_forked_and_pruned_while_its_server_serves(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=SCRIPT)
    file = setup.root / "a.txt"
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            thread_id = (await call(client, "write_file", path="/a.txt", content="one"))[
                "thread_id"
            ]
            here = {"thread_id": thread_id}
            one = (await call(client, "threads", **here))["checkpoints"][0]["checkpoint_id"]
            await call(client, "write_file", path="/a.txt", content="two", **here)

            forked = await threads(setup, "fork", thread_id, "--at", one, "--to", "copy")
            assert (forked.returncode, forked.stdout) == (0, "copy\n"), forked.stderr
            assert file.read_text() == "two"
            await call(client, "write_todos", todos=[], thread_id="copy")
            listed = (await call(client, "threads"))["threads"]
            assert [row["thread_id"] for row in listed] == ["copy", thread_id]

            pruned = await threads(setup, "prune", thread_id, "--keep-latest", "1")
            assert pruned.returncode == 0 and "removed: 0" not in pruned.stdout, pruned.stderr
            left = (await call(client, "threads", **here))["checkpoints"]
            assert len(left) == 1
            await call(client, "write_file", path="/a.txt", content="three", **here)
            assert file.read_text() == "three"
            # The copy is whole: what it shared with its source is not gone with the source's.
            assert len((await call(client, "threads", thread_id="copy"))["checkpoints"]) > 2
            await call(client, "rewind", thread_id="copy", checkpoint_id=one)


async def test_runs_at_work_and_in_wait_go_on_after_everything_was_pruned(tmp_path: Path) -> None:
    setup = Setup(tmp_path, flags=["--approve", "write_file"], script=SCRIPT)
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            asks = await call(client, "task", goal="ask first")
            assert asks["status"] == "needs_approval"
            works = await call(client, "task", goal="take long", wait_seconds=0)
            assert works["status"] == "running"

            pruned = await threads(setup, "prune", "--keep-latest", "1", "--yes")
            assert pruned.returncode == 0, pruned.stderr
            refused = await threads(setup, "delete", works["thread_id"], "--yes")
            assert refused.returncode == 1 and works["run_id"] in refused.stderr
            forked = await threads(setup, "fork", works["thread_id"], "--to", "copy")
            assert forked.returncode == 0, forked.stderr
            assert "No runs." in (await threads(setup, "show", "copy")).stdout

            done = await call(client, "reply", run_id=asks["run_id"], decision="approve")
            assert (done["status"], done["answer"]) == ("done", "Was allowed.")
            assert (setup.root / "a.txt").read_text() == "asked"
            ended = await call(client, "cancel", run_id=works["run_id"])
            assert ended["status"] == "cancelled"
