"""Queued runs, the limits, and who the caller is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from deep_agent_mcp.harness.checkpoint.base import Run
from deep_agent_mcp.server.runs.queue.thread_queues import ThreadQueues
from tests.studio.looking import looking, script

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/x.txt", "content": "x"}}
RUNS = script(ask=[{"tool_calls": [WRITE]}, {"text": "Written."}], say=[{"text": "Said."}])


async def test_queued_runs_are_shown_behind_the_one_that_waits_for_a_person(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=("write_file",)) as server:
        first = await server.call("task", goal="ask me")
        queued = await server.call(
            "task", goal="say it", thread_id=first["thread_id"], on_busy="queue", wait_seconds=0
        )
        assert queued["status"] == "queued"
        shown = await server.read("studio://fleet")
        (one,) = shown["queued"]
        assert (one["run_id"], one["title"]) == (queued["run_id"], "say it")
        assert one["doing"] == f"queued behind run {first['run_id']}"
        assert shown["quotas"]["max_runs"] > 0
        assert "replicas" not in shown
        (row,) = (await server.read("threads://search"))["threads"]
        assert (row["status"], row["last_run"]) == ("needs_approval", first["run_id"])
        assert (await server.read("inbox://questions"))["total"] == 1


async def test_the_fleet_looks_at_each_thread_once_however_many_runs_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looks: list[str] = []
    line = ThreadQueues.line

    async def watched(queues: ThreadQueues, thread_id: str) -> Sequence[Run]:
        looks.append(thread_id)
        return await line(queues, thread_id)

    async with looking(tmp_path, RUNS, approve=("write_file",)) as server:
        before = await server.call("task", goal="ask me")
        expected: list[str] = []
        for _ in range(3):
            expected.append(f"queued behind run {before['run_id']}")
            before = await server.call(
                "task",
                goal="say it",
                thread_id=before["thread_id"],
                on_busy="queue",
                wait_seconds=0,
            )
        monkeypatch.setattr(ThreadQueues, "line", watched)
        shown = await server.read("studio://fleet")
        assert [one["doing"] for one in shown["queued"]] == expected
        assert len(looks) == 1


async def test_the_caller_is_told_what_there_is(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        me = await server.read("studio://me")
        assert me["scopes"] == ["admin", "approve", "delegate", "drive"]
        assert me["root"] == str(server.root)
        assert [one["name"] for one in me["agents"]] == ["general-purpose"]
        assert me["execute"] == "off"
