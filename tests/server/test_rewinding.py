"""The `rewind` tool: servers without a root, copies of threads, paused runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import RunEnded
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.threads.rewinding import rewind
from tests.e2e.servers import call, refused, text_of
from tests.loop.models import Turns, says
from tests.loop.models import call as calls

pytestmark = pytest.mark.anyio


def settings(place: Path, **flags: object) -> Any:
    return load_settings({"state_dir": str(place / "state"), **flags}, {})


async def test_files_on_disk_are_not_forgotten_by_a_server_without_a_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with anyio.fail_after(60):
        async with create_app(settings(tmp_path, root=str(root))) as app, Client(app.server) as one:
            wrote = await call(one, "write_file", path="/a.txt", content="one")
            thread_id = wrote["thread_id"]
            history = (await call(one, "threads", thread_id=thread_id))["checkpoints"]
            await call(one, "write_file", path="/a.txt", content="two", thread_id=thread_id)
        async with create_app(settings(tmp_path)) as app, Client(app.server) as other:
            before = await call(other, "threads", thread_id=thread_id)
            where = {"thread_id": thread_id, "checkpoint_id": history[0]["checkpoint_id"]}
            text = await refused(other, "rewind", **where)
            assert "/a.txt" in text and "--root DIR" in text and "Nothing was done" in text
            assert await call(other, "threads", thread_id=thread_id) == before
            result = await other.call_tool("rewind", {**where, "force": True})
            assert not result.is_error and result.structured_content is not None
            assert result.structured_content["files_put_back"] == []
            assert result.structured_content["files_left"] == ["/a.txt"]
            (text,) = [block.text for block in result.content if block.type == "text"]
            assert "left as they are: /a.txt" in text and "none had changed" not in text
            assert (root / "a.txt").read_text() == "two"


async def test_a_checkpoint_of_another_thread_is_refused(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            a, b = [
                (await call(client, "write_file", path="/x", content="one", thread_id="new"))[
                    "thread_id"
                ]
                for _ in range(2)
            ]
            before = await call(client, "threads", thread_id=b)
            for step in (await call(client, "threads", thread_id=a))["checkpoints"]:
                wrong = step["checkpoint_id"]
                for tool, args in (
                    ("rewind", {"checkpoint_id": wrong}),
                    ("threads", {"before": wrong}),
                ):
                    text = await refused(client, tool, thread_id=b, **args)
                    assert f"hread '{b}' has no checkpoint '{wrong}'" in text
            assert await call(client, "threads", thread_id=b) == before


async def test_calls_move_a_copy_and_leave_its_source_as_it_is(tmp_path: Path) -> None:
    async def content(thread_id: str) -> str:
        args = {"path": "/a.txt", "thread_id": thread_id}
        return text_of(await client.call_tool("read_file", args)).splitlines()[1]

    with anyio.fail_after(60):
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            source = (await call(client, "write_file", path="/a.txt", content="one"))["thread_id"]
            target = (await call(client, "threads", thread_id=source))["checkpoints"][0]
            await app.agent().checkpointer.copy_thread(source, "copy")
            await call(client, "write_file", path="/a.txt", content="two", thread_id="copy")
            assert (await content("copy"), await content(source)) == ("two", "one")
            runs = (await call(client, "threads", thread_id="copy"))["runs"]
            assert [run["status"] for run in runs] == ["done", "done"]
            where = {"thread_id": "copy", "checkpoint_id": target["checkpoint_id"]}
            assert (await call(client, "rewind", **where))["files_put_back"] == ["/a.txt"]
            assert (await content("copy"), await content(source)) == ("one", "one")


async def test_a_paused_run_does_not_hinder_a_rewind_and_cannot_undo_it(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            thread_id = (await call(client, "write_file", path="/a.txt", content="1"))["thread_id"]
            here = {"thread_id": thread_id}
            target = (await call(client, "threads", **here))["checkpoints"][0]["checkpoint_id"]
            await call(client, "write_file", path="/a.txt", content="2", **here)
            journal = app.agent().checkpointer
            (run, *_) = await journal.find_runs(thread_id=thread_id)
            paused = replace(run, status="paused", owner=None)  # as an import brings it in
            await journal.commit(Batch(thread_id, runs=[paused]))
            await call(client, "rewind", checkpoint_id=target, **here)
            after = await call(client, "threads", **here)
            with pytest.raises(RunEnded, match="moved on without run"):
                await app.runs.reply(run.id, {})
            assert await call(client, "threads", **here) == after
            assert (await call(client, "cancel", run_id=run.id))["status"] == "cancelled"
            await call(client, "write_file", path="/a.txt", content="3", **here)


async def test_reply_lets_a_paused_run_go_on_and_refuses_one_that_was_overtaken(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(60):
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            wrote = await call(client, "write_file", path="/a.txt", content="1")
            journal = app.agent().checkpointer
            (run,) = await journal.find_runs(thread_id=wrote["thread_id"])
            paused = replace(run, status="paused", owner=None)
            await journal.commit(Batch(run.thread_id, runs=[paused]))
            assert (await call(client, "reply", run_id=run.id))["status"] == "done"
            paused = replace(paused, attempt=3)

            history = (await call(client, "threads", thread_id=run.thread_id))["checkpoints"]
            await journal.commit(Batch(run.thread_id, runs=[paused]))
            where = {"thread_id": run.thread_id, "checkpoint_id": history[0]["checkpoint_id"]}
            await call(client, "rewind", **where)
            assert "moved on without run" in await refused(client, "reply", run_id=run.id)


async def test_files_of_a_mounted_directory_are_put_back_with_those_of_the_thread(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_text("old")
    backend = CompositeBackend(StateBackend(), {"/disk": DirectoryBackend(tmp_path)})
    turns = [
        says("", calls("c1", "write_file", path="/disk/f", content="new")),
        says("", calls("c2", "write_file", path="/note", content="new")),
        says("done"),
    ]
    journal = MemoryCheckpointer()
    agent = create_deep_agent(Turns(*turns), backend=backend, checkpointer=journal)
    await agent.ainvoke("go", thread_id="t")
    first = (await journal.history("t", limit=50))[-1].id

    async def back(to: Any, force: bool = False) -> tuple[list[str], list[str]]:
        options: dict[str, Any] = {"run_id": "r", "force": force, "advice": ""}
        done = await rewind(agent, to, "t", first, **options)
        return done.files, done.left

    with pytest.raises(FileError, match="/disk/f, but their directory"):
        await back(CompositeBackend(StateBackend(), {}))
    assert (tmp_path / "f").read_text() == "new"
    assert await back(backend) == (["/disk/f", "/note"], [])
    assert (tmp_path / "f").read_text() == "old"
