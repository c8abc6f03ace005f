"""Whoever watches is told when questions, steps and answers that are being written change."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from mcp.server.subscriptions import ResourceUpdated, ServerEvent

from tests.studio.looking import looking, script

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/x.txt", "content": "x"}}
RUNS = script(ask=[{"text": "I write.", "tool_calls": [WRITE]}, {"text": "Written."}])


async def test_questions_steps_and_writing_are_announced(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=("write_file",)) as server:
        heard: set[str] = set()
        more = anyio.Event()

        def hear(event: ServerEvent) -> None:
            nonlocal more
            if isinstance(event, ResourceUpdated):
                heard.add(str(event.uri))
                more.set()

        async def until(uri: str) -> None:
            nonlocal more
            while uri not in heard:
                await more.wait()
                more = anyio.Event()

        unsubscribe = server.app.announcements.bus.subscribe(hear)
        run = await server.call("task", goal="ask")
        thread = f"thread://{run['thread_id']}"
        await until("inbox://questions")
        await until(f"{thread}/steps")
        await until(f"{thread}/writing")
        heard.clear()
        await server.call("reply", run_id=run["run_id"], decision="approve")
        await until("inbox://questions")
        assert (await server.read("inbox://questions"))["total"] == 0
        unsubscribe()
