"""Several backends under one root: who owns a path, and that nothing shows the seams."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.tools.tool import tool
from tests.backends.workbench import Bench
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """State by default; a directory at /disk, another in it, and a store far down."""
    for name in ("disk", "inner"):
        (tmp_path / name).mkdir()
    routes = {
        "/disk/": DirectoryBackend(tmp_path / "disk"),
        "disk/inner": DirectoryBackend(tmp_path / "inner"),
        "/a/b/memories": StoreBackend(MemoryStore(), ("ann",)),
    }
    return Bench(CompositeBackend(StateBackend(), routes), tmp_path)


async def code_of(operation) -> str:
    with pytest.raises(FileError) as caught:
        await operation
    return caught.value.code


async def test_the_longest_prefix_decides(bench: Bench, tmp_path: Path):
    await bench.seed("/disk/f", b"1")
    await bench.seed("/disk/inner/f", b"2")
    await bench.seed("/disk/innermost", b"3")
    await bench.seed("/diskette", b"4")
    assert (tmp_path / "disk/f").read_bytes() == b"1"
    assert (tmp_path / "inner/f").read_bytes() == b"2"
    assert (tmp_path / "disk/innermost").read_bytes() == b"3"
    assert set(bench.state["files"]) == {"/diskette"}


async def test_listings_show_where_parts_are_mounted(bench: Bench):
    await bench.seed("/disk/f", b"1")
    files = bench.files()
    listed = {path: [one.path for one in await files.ls(path)] for path in ("/", "/a", "/disk")}
    assert listed == {"/": ["/a", "/disk"], "/a": ["/a/b"], "/disk": ["/disk/inner", "/disk/f"]}
    assert await files.ls("/a/b/memories") == []
    assert await code_of(files.ls("/a/c")) == "not_found"
    for path in ("/a", "/a/b", "/a/b/memories", "/disk/inner"):
        assert await code_of(files.write(path, b"")) == "is_directory"
        assert await code_of(files.read(path)) == "is_directory"
        assert await code_of(files.delete(path)) == "permission_denied"
    assert await code_of(files.delete("/disk")) == "permission_denied"
    assert await code_of(files.delete("/")) == "permission_denied"


async def test_what_a_part_has_below_another_ones_prefix_is_out_of_reach(
    bench: Bench, tmp_path: Path
):
    (tmp_path / "disk/inner").mkdir()
    (tmp_path / "disk/inner/hidden").write_text("needle\n")
    files = bench.files()
    assert not await files.glob("hidden")
    assert not (await files.grep("needle")).matches
    assert await files.ls("/disk/inner") == []
    assert [one.path for one in await files.ls("/disk")] == ["/disk/inner"]


PLACES = ("/x.md", "/disk/x.md", "/disk/inner/d/x.md", "/a/b/memories/x.md")


async def test_searches_from_the_root_cover_all_parts(bench: Bench):
    for path in PLACES:
        await bench.seed(path, b"needle\n")
    files = bench.files()
    assert {one.path for one in await files.glob("*.md")} == set(PLACES)
    assert {one.path for one in await files.glob("/disk/**/*.md")} == set(PLACES[1:3])
    assert {one.path for one in await files.glob("{disk,a}/**", "/")} == set(PLACES[1:])
    assert {one.path for one in await files.glob("*/*/x.md", "/disk")} == {PLACES[2]}
    assert {one.path for one in await files.glob("*.md", "/a")} == {PLACES[3]}
    page = await files.grep("needle")
    assert ({one.path for one in page.matches}, page.truncated) == (set(PLACES), False)
    page = await files.grep("needle", glob="disk/*.md")
    assert [one.path for one in page.matches] == ["/disk/x.md"]
    page = await files.grep("needle", "/disk/x.md")
    assert [one.path for one in page.matches] == ["/disk/x.md"]


async def test_caps_hold_across_parts(bench: Bench):
    for path in PLACES:
        await bench.seed(path, b"needle\n" * 3)
    files = bench.files()
    page = await files.grep("needle", limit=11)
    assert (len(page.matches), page.truncated) == (11, True)
    page = await files.grep("needle", limit=12)
    assert (len(page.matches), page.truncated) == (12, False)
    assert len(await files.glob("*", limit=3)) == 3


async def test_pages_of_a_search_through_all_parts_skip_nothing(bench: Bench):
    for path in PLACES:
        for number in range(120):
            await bench.seed(f"{path}.{number:03}", b"needle\n")
    seen: list[str] = []
    offset = 0
    while True:
        result = await bench.result("grep", pattern="needle", offset=offset)
        rows = result.artifact["results"]
        seen += [row["path"] for row in rows]
        offset += len(rows)
        if "next" not in result.artifact:
            break
    assert len(seen) == len(set(seen)) == result.artifact["total"] == 480


async def test_newest_files_come_first_whoever_keeps_them(bench: Bench, tmp_path: Path):
    for path in PLACES:
        await bench.seed(path, b"x")
    os.utime(tmp_path / "disk/x.md", (4e9, 4e9))
    os.utime(tmp_path / "inner/d/x.md", (1, 1))
    found = [one.path for one in await bench.files().glob("*.md")]
    assert (found[0], found[-1]) == (PLACES[1], PLACES[2])
    assert [one.path for one in await bench.files().glob("*.md", limit=1)] == [PLACES[1]]


async def test_errors_name_paths_as_the_caller_does(bench: Bench):
    await bench.seed("/disk/inner/d/f", b"x")
    await bench.seed("/a/b/memories/f", b"x")
    files = bench.files()
    for operation, path in (
        (files.read("/disk/inner/no"), "/disk/inner/no"),
        (files.read("/disk/inner/d"), "/disk/inner/d"),
        (files.write("/disk/inner/d/f", b"", expected=b"y"), "/disk/inner/d/f"),
        (files.grep("x", "/a/b/memories/no such"), "/a/b/memories/no such"),
    ):
        with pytest.raises(FileError) as caught:
            await operation
        assert caught.value.path == path
        assert str(caught.value).startswith(f"{path} ") or str(caught.value).startswith(f"{path}:")
    with pytest.raises(FileError, match=r"^/a/b/memories/f/g: /a/b/memories/f is a file"):
        await files.write("/a/b/memories/f/g", b"")


async def test_native_paths_of_a_mounted_directory_are_understood(bench: Bench, tmp_path: Path):
    backend = bench.backend
    assert isinstance(backend, CompositeBackend)
    assert backend.canonical(str(tmp_path / "inner/x")) == "/disk/inner/x"
    assert backend.canonical("disk\\x") == "/disk/x"
    assert backend.canonical("/notes/x") == "/notes/x"
    with pytest.raises(FileError):
        backend.canonical("../x")
    over = CompositeBackend(DirectoryBackend(tmp_path), {"/disk": StateBackend()})
    assert over.canonical(str(tmp_path / "inner/x")) == "/inner/x"
    assert over.canonical(str(tmp_path / "disk/x")) == str(tmp_path / "disk/x")  # out of reach
    (tmp_path / "disk/link").symlink_to("real")
    assert backend.real_path("/disk/link/f") == "/disk/real/f"
    assert backend.real_path("/notes") == "/notes"


async def test_files_in_mounted_directories_are_put_back(bench: Bench, tmp_path: Path):
    for path in ("/disk/f", "/disk/inner/f"):
        await bench.seed(path, b"old")
    since = (await bench.checkpointer.file_changes("thr_1", 0))[0].seq
    for path in ("/x", "/disk/f", "/disk/inner/f"):
        await bench.files().write(path, b"new")
    changes = [one for one in await bench.checkpointer.file_changes("thr_1", 0) if one.seq > since]
    assert {one.path for one in changes} == {"/disk/f", "/disk/inner/f"}
    backend = bench.backend
    assert isinstance(backend, CompositeBackend)

    (tmp_path / "inner/f").write_bytes(b"theirs")
    who = {"thread_id": "thr_1", "run_id": "run_2", "checkpointer": bench.checkpointer}
    with pytest.raises(FileError, match="somebody else changed /disk/inner/f since"):
        await backend.restore(changes, **who)
    assert (tmp_path / "disk/f").read_bytes() == b"new"

    restored = await backend.restore(changes, **who, force=True)
    assert sorted(restored) == ["/disk/f", "/disk/inner/f"]
    assert (tmp_path / "disk/f").read_bytes() == (tmp_path / "inner/f").read_bytes() == b"old"
    newest = (await bench.checkpointer.file_changes("thr_1", 0))[0]
    assert newest.path in ("/disk/f", "/disk/inner/f")
    assert not backend.can_restore("/x") and not backend.can_restore("/a/b/memories/f")


async def test_where_long_results_and_messages_appear_can_be_chosen(tmp_path: Path):
    @tool
    def search() -> str:
        """Return much."""
        return "x" * 70_000

    kept = StoreBackend(MemoryStore(), ("kept",))
    backend = CompositeBackend(StateBackend(), {"/kept": kept}, artifacts_root="/kept")

    def reads_the_rest(request: Any) -> Any:
        found = re.search(r"/kept/large_tool_results/c1_\w+\.txt", request.messages[-1].text)
        assert found is not None
        return says("", call("c2", "read_file", path=found[0]))

    model = Turns(
        says("", call("c1", "search")),
        reads_the_rest,
        says("", call("c3", "read_file", path="/kept/conversation_history/transcript.md")),
        says("done"),
    )
    agent = create_agent(model, [search], middleware=[FilesystemMiddleware(backend)])
    result = await agent.ainvoke("the question")
    answers = [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert "/kept/large_tool_results/c1_" in answers[0] and len(answers[0]) < 6_000
    assert "x" * 1_000 in answers[1] and "the question" in answers[2]
    assert not result.state.get("files")


def test_layouts_that_cannot_work_are_refused():
    state, store = StateBackend(), StoreBackend(MemoryStore(), ("ann",))
    for routes in ({"/": store}, {"": store}, {"/../x": store}, {"/a": store, "a/": store}):
        with pytest.raises(AgentBuildError):
            CompositeBackend(state, routes)
    with pytest.raises(AgentBuildError, match="only one part can be a StateBackend"):
        CompositeBackend(state, {"/a": CompositeBackend(store, {"/b": StateBackend()})})
    with pytest.raises(AgentBuildError):
        CompositeBackend(state, {}, artifacts_root="../x")


async def test_composites_can_be_mounted_too(tmp_path: Path):
    inner = CompositeBackend(
        StoreBackend(MemoryStore(), ("ann",)), {"/disk": DirectoryBackend(tmp_path)}
    )
    bench = Bench(CompositeBackend(StateBackend(), {"/all": inner}), tmp_path)
    await bench.seed("/all/disk/f", b"x")
    assert (tmp_path / "f").read_bytes() == b"x"
    (change,) = await bench.checkpointer.file_changes("thr_1", 0)
    assert change.path == "/all/disk/f"
    with pytest.raises(FileError, match=r"^/all/disk/no: "):
        await bench.files().read("/all/disk/no")
