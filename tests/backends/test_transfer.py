"""Files into a thread before a run, and out of it afterwards, with a real agent and journal."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.backends.transfer import download_files, upload_files
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import StaleThread, ThreadBusy, UnknownThread
from deep_agent_mcp.harness.loop.run_executor import RunOptions
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.store.memory import MemoryStore
from tests.backends.workbench import BACKENDS, make_backend
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def agent_over(kind: str, tmp_path: Path, *turns: object) -> AsyncGenerator[Agent]:
    root = tmp_path / "root"
    root.mkdir()
    backend = make_backend(kind, root)
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        yield create_agent(
            Turns(*turns),  # type: ignore[arg-type]
            middleware=[FilesystemMiddleware(backend)],
            checkpointer=journal,
        )
        if isinstance(backend, StoreBackend) and backend.store is not None:
            await backend.store.close()


@pytest.mark.parametrize("kind", BACKENDS)
async def test_what_is_put_in_before_a_run_is_worked_on_and_fetched_after(
    kind: str, tmp_path: Path
):
    turns = (
        says("", call("c1", "read_file", path="/in/data.csv")),
        says("", call("c2", "edit_file", path="/in/data.csv", old_string="2", new_string="3")),
        says("", call("c3", "write_file", path="/out/report.md", content="Grüße\n")),
        says("done"),
    )
    async with agent_over(kind, tmp_path, *turns) as agent:
        uploads = await upload_files(
            agent,
            "thr",
            {"/in/data.csv": b"a\r\n2\r\n", "in/raw.bin": bytes(range(256)), "/t": "ü"},
        )
        assert [(one.path, one.ok, one.created) for one in uploads] == [
            ("/in/data.csv", True, True), ("/in/raw.bin", True, True), ("/t", True, True),
        ]  # fmt: skip
        result = await agent.ainvoke("Work on it.", thread_id="thr")
        assert result.run.answer == "done"
        paths = ["/in/data.csv", "/in/raw.bin", "/t", "/out/report.md"]
        downloads = await download_files(agent, "thr", paths)
        assert [one.data for one in downloads] == [
            b"a\r\n3\r\n", bytes(range(256)), "ü".encode(), "Grüße\n".encode(),
        ]  # fmt: skip
        assert [one.path for one in downloads] == paths


@pytest.mark.parametrize("kind", BACKENDS)
async def test_each_path_has_its_own_result_and_the_others_go_on(kind: str, tmp_path: Path):
    async with agent_over(kind, tmp_path) as agent:
        uploads = await upload_files(
            agent,
            "thr",
            {
                "/a": b"1",
                "../b": b"",
                "a": b"2",
                "/a/c": b"",
                "/z\0": b"",
                "/half": "\ud800",
                "": b"",
            },
        )
        assert [one.error for one in uploads] == [
            None, "invalid_path", "invalid_path", "not_a_directory", "invalid_path", "failed",
            "invalid_path",
        ]  # fmt: skip
        assert all(one.message for one in uploads[1:])
        downloads = await download_files(agent, "thr", ["/a", "/", "/no", "~/x", "/a/b"])
        assert [one.error for one in downloads][:4] == [
            None, "is_directory", "not_found", "invalid_path",
        ]  # fmt: skip
        assert downloads[4].error in ("not_found", "not_a_directory")
        assert downloads[0].data == b"1" and downloads[1].data is None
        (again,) = await upload_files(agent, "thr", {"/a": b"2"})
        assert again.ok and not again.created


async def test_an_upload_into_the_state_is_one_step_of_the_thread(tmp_path: Path):
    async with agent_over("state", tmp_path, says("ok")) as agent:
        await upload_files(agent, "thr", {f"/{n}": b"x" for n in range(5)})
        (first,) = await agent.get_state_history("thr")
        await agent.ainvoke("hello", thread_id="thr")
        await upload_files(agent, "thr", {"/later": b"y"})
        assert (await agent.get_state("thr")).values["messages"][-1].text == "ok"
        await agent.fork("thr", first.id)
        downloads = await download_files(agent, "thr", ["/0", "/later"])
        assert [one.error for one in downloads] == [None, "not_found"]


async def test_nothing_is_begun_for_files_that_all_failed(tmp_path: Path):
    async with agent_over("state", tmp_path) as agent:
        assert not (await upload_files(agent, "thr", {"..": b""}))[0].ok
        assert await upload_files(agent, "thr", {}) == []
        with pytest.raises(UnknownThread):
            await download_files(agent, "thr", ["/a"])


async def test_a_running_thread_is_not_changed_under_its_run(tmp_path: Path):
    model = Turns(says("ok"))
    model.gate = anyio.Event()
    agent = create_agent(model, middleware=[FilesystemMiddleware(make_backend("state", tmp_path))])
    async with anyio.create_task_group() as group:
        group.start_soon(agent.ainvoke, "hello")
        await model.asked.wait()
        (run,) = await agent.checkpointer.find_runs(limit=5)
        with pytest.raises(ThreadBusy):
            await upload_files(agent, run.thread_id, {"/a": b"1"})
        model.gate.set()
    assert not (await download_files(agent, run.thread_id, ["/a"]))[0].ok
    assert (await upload_files(agent, run.thread_id, {"/a": b"1"}))[0].ok


async def test_a_thread_that_waits_for_an_answer_keeps_waiting(tmp_path: Path):
    model = Turns(says("", call("c1", "write_file", path="/a", content="mine")), says("done"))
    agent = create_agent(
        model,
        middleware=[FilesystemMiddleware(make_backend("state", tmp_path))],
        interrupt_before=["tools"],
    )
    result = await agent.ainvoke("go", thread_id="thr")
    with pytest.raises(ThreadBusy, match="not finished"):
        await upload_files(agent, "thr", {"/b": b"1"})
    resumed = await agent.aresume(result.run.id)
    assert (resumed.run.status, resumed.run.answer) == ("done", "done")
    assert (await upload_files(agent, "thr", {"/b": b"1"}))[0].ok
    assert [one.data for one in await download_files(agent, "thr", ["/a", "/b"])] == [b"mine", b"1"]


@pytest.mark.parametrize("known", [False, True], ids=["a new thread", "a known thread"])
async def test_of_uploads_at_the_same_time_none_is_lost(tmp_path: Path, known: bool):
    async with agent_over("state", tmp_path) as agent:
        if known:
            await upload_files(agent, "thr", {"/old": b"x"})
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(upload_files, agent, "thr", {f"/{number}": b"%d" % number})
        downloads = await download_files(agent, "thr", [f"/{number}" for number in range(8)])
        assert [one.data for one in downloads] == [b"%d" % number for number in range(8)]


async def test_uploads_to_disk_can_be_undone_like_an_agents_writes(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"before")
    backend = DirectoryBackend(tmp_path)
    agent = create_agent(Turns(), middleware=[FilesystemMiddleware(backend)])
    await upload_files(agent, "thr", {"/f": b"after", "/new/g": b"1"})
    changes = await agent.checkpointer.file_changes("thr", 0)
    assert {one.path for one in changes} == {"/f", "/new/g"}
    await backend.restore(
        [*reversed(changes)], thread_id="thr", run_id="", checkpointer=agent.checkpointer
    )
    assert (tmp_path / "f").read_bytes() == b"before" and not os.listdir(tmp_path / "new")


async def test_the_context_says_whose_files_they_are():
    store = MemoryStore()
    backend = StoreBackend(None, lambda runtime: ("users", runtime.context))
    agent = create_agent(Turns(says("ok")), middleware=[FilesystemMiddleware(backend)], store=store)
    await agent.ainvoke("hi", thread_id="thr", options=RunOptions(context="ann"))
    await upload_files(agent, "thr", {"/f": b"ann's"}, context="ann")
    mine = await download_files(agent, "thr", ["/f"], context="ann")
    others = await download_files(agent, "thr", ["/f"], context="bob")
    assert (mine[0].data, others[0].error) == (b"ann's", "not_found")


async def test_an_agent_without_files_says_what_to_do():
    agent = create_agent(Turns())
    with pytest.raises(ValueError, match="FilesystemMiddleware"):
        await upload_files(agent, "thr", {"/f": b""})


async def test_a_disk_that_fails_is_told_from_a_wrong_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async with agent_over("descriptors", tmp_path) as agent:
        monkeypatch.setattr(os, "link", full)
        monkeypatch.setattr(os, "replace", full)
        (result,) = await upload_files(agent, "thr", {"/f": b"x"})
        assert result.error == "failed" and "No space left" in result.message


async def test_a_text_that_a_rule_blocks_keeps_no_other_file_back():
    middleware = [
        FilesystemMiddleware(StateBackend()),
        PIIMiddleware("email", strategy="block", apply_to_tool_results=True),
    ]
    agent = create_agent(Turns(says("hi")), middleware=middleware)
    files = {"/a": "fine", "/b": "Ask bob@example.com.", "/c": "fine too"}
    results = await upload_files(agent, "t", files)
    assert [(one.path, one.ok, one.created) for one in results] == [
        ("/a", True, True), ("/b", False, False), ("/c", True, True),
    ]  # fmt: skip
    assert "email" in results[1].message
    found = await download_files(agent, "t", files)
    assert [(one.data, one.error) for one in found] == [
        (b"fine", None), (None, "not_found"), (b"fine too", None),
    ]  # fmt: skip


async def test_what_is_no_content_is_refused_before_anything_is_written():
    agent = create_agent(Turns(says("hi")), middleware=[FilesystemMiddleware(StateBackend())])
    files: Any = {"/a": "fine", "/b": 5}
    with pytest.raises(TypeError, match=r"/b: .* bytes or text; got int\. Nothing was written"):
        await upload_files(agent, "t", files)
    with pytest.raises(UnknownThread):
        await agent.get_state("t")


async def test_a_file_on_disk_was_created_though_the_thread_had_to_be_tried_again(tmp_path: Path):
    class Contended(MemoryCheckpointer):
        stale = True

        async def commit(self, batch: Batch) -> None:
            if batch.checkpoints and self.stale:
                self.stale = False
                raise StaleThread("somebody was faster")
            await super().commit(batch)

    backend = CompositeBackend(StateBackend(), {"/disk": DirectoryBackend(tmp_path)})
    agent = create_agent(
        Turns(says("hi")),
        middleware=[FilesystemMiddleware(backend)],
        checkpointer=Contended(),
    )
    results = await upload_files(agent, "t", {"/disk/a": "x", "/b": "y"})
    assert [(one.path, one.created) for one in results] == [("/disk/a", True), ("/b", True)]
