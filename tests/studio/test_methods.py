"""Forking and deleting threads, by methods that are no tools."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from deep_agent_mcp.server.mcp.resources import FURTHER_METHODS
from tests.shell.support import need_bubblewrap
from tests.studio.looking import looking, script

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/x.txt", "content": "x"}}
RUNS = script(ask=[{"tool_calls": [WRITE]}, {"text": "Written."}], say=[{"text": "Said."}])


async def test_a_fork_stands_at_its_checkpoint_and_goes_on_apart(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        first = await server.call("write_todos", todos=[{"content": "a", "status": "pending"}])
        thread_id = first["thread_id"]
        history = (await server.read(f"thread://{thread_id}/history"))["checkpoints"]
        await server.call("task", goal="say", thread_id=thread_id)
        fork = await server.ask(
            "threads/fork", threadId=thread_id, checkpointId=history[0]["checkpoint_id"]
        )
        assert fork["threadId"].startswith("thr_")
        steps = (await server.read(f"thread://{fork['threadId']}/steps"))["steps"]
        assert [one["kind"] for one in steps] == ["text", "tool"]
        whole = await server.ask("threads/fork", threadId=thread_id)
        assert len((await server.read(f"thread://{whole['threadId']}/steps"))["steps"]) == 4
        with pytest.raises(MCPError, match=r"Nothing was forked: thread .* has no checkpoint"):
            await server.ask("threads/fork", threadId=thread_id, checkpointId="ckpt_x")


async def test_a_thread_is_deleted_only_when_it_is_meant_and_at_rest(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=("write_file",)) as server:
        run = await server.call("task", goal="ask")
        thread_id = run["thread_id"]
        await server.read("threads://search")
        with pytest.raises(MCPError, match="Nothing was deleted: give the thread's id"):
            await server.ask("threads/delete", threadId=thread_id)
        with pytest.raises(MCPError, match="waits for an answer"):
            await server.ask("threads/delete", threadId=thread_id, confirm=thread_id)
        await server.call("cancel", run_id=run["run_id"])
        await server.ask("threads/delete", threadId=thread_id, confirm=thread_id)
        assert (await server.read("threads://search"))["total"] == 0
        for method in ("threads/delete", "threads/fork"):
            with pytest.raises(MCPError, match="There is no thread"):
                await server.ask(method, threadId=thread_id, confirm=thread_id)


async def test_jobs_of_a_deleted_thread_end(tmp_path: Path):
    need_bubblewrap()
    async with looking(tmp_path, RUNS, execute="bubblewrap") as server:
        os.mkfifo(server.root / "held")
        fd = os.open(server.root / "held", os.O_RDONLY | os.O_NONBLOCK)
        command = "exec 5>/workspace/held; echo up >&5; sleep 1000"
        started = await server.call("execute", command=command, background=True)
        await anyio.wait_readable(fd)
        assert os.read(fd, 64) == b"up\n"
        thread_id = started["thread_id"]
        await server.ask("threads/delete", threadId=thread_id, confirm=thread_id)
        assert os.read(fd, 64) == b""
        os.close(fd)


async def test_none_of_these_acts_is_a_tool_or_works_where_nothing_may_change(tmp_path: Path):
    async with looking(tmp_path, RUNS, read_only=True) as server:
        names = {one.name for one in (await server.client.list_tools()).tools}
        for method in FURTHER_METHODS:
            assert method not in names
            said = await server.said(method)
            assert "There is no tool" in said
            assert "Nothing was done" in said
        with pytest.raises(MCPError, match="read-only"):
            await server.ask("threads/fork", threadId="thr_x")
        with pytest.raises(MCPError, match="threads/fork did nothing: threadId"):
            await server.ask("threads/fork")
