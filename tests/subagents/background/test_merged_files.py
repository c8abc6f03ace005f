"""What a background task does to its files, and what its caller finds of that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import FileData
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.three_way_merge import digest, merge_changes
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import call, says
from tests.subagents.background.support import check, family, news, start, task_in, view

pytestmark = pytest.mark.anyio


def write(call_id: str, path: str, content: str) -> Any:
    return call(call_id, "write_file", path=path, content=content)


@tool
def remove(path: str) -> ToolResult:
    """Remove a file."""
    return ToolResult("removed", update={"files": {path: None}})


def contents(files: Mapping[str, FileData]) -> dict[str, str]:
    return {path: file.content for path, file in files.items()}


async def test_files_of_a_task_arrive_when_it_is_collected_and_none_is_overwritten() -> None:
    main = [
        says("", write("w1", "/ours.md", "old"), write("w2", "/both.md", "old")),
        says("", write("w3", "/gone.md", "old"), write("w4", "/kept.md", "old")),
        says("", start("c1")),
        says("", write("w5", "/both.md", "mine"), write("w6", "/kept.md", "mine")),
        says("Begun."),
        lambda request: check(request, "c1"),
        says("Collected."),
        lambda request: check(request, "c1"),
        says("Again."),
    ]
    digger = [
        says("", write("d1", "/ours.md", "theirs"), write("d2", "/both.md", "theirs")),
        says(
            "",
            write("d3", "/new.md", "new"),
            call("d4", "remove", path="/gone.md"),
            call("d5", "remove", path="/kept.md"),
        ),
        says("Dug."),
    ]
    async with BackgroundSubAgents(MemoryCheckpointer()) as background:
        agent = family(background, {"main": main, "digger": digger}, [remove])
        with anyio.fail_after(60):
            first = await agent.ainvoke("go", thread_id="t")
            assert (await view(background, first, "c1")).status == "success"
            before = await agent.ainvoke("collect", thread_id="t")
            after = await agent.ainvoke("again", thread_id="t")
    assert contents(first.state["files"])["/ours.md"] == "old"
    aside = f"/conflicts/{task_in(first.state['messages'], 'c1')}/both.md"
    expected = {
        "/ours.md": "theirs",
        "/both.md": "mine",
        aside: "theirs",
        "/new.md": "new",
        "/kept.md": "mine",
    }
    assert contents(before.state["files"]) == expected
    assert contents(after.state["files"]) == expected
    told = [one.text for one in after.state["messages"] if "Files of" in one.text]
    assert len(told) == 1
    kept = f"/both.md was changed here too, so it stays as it is; its version is in {aside}"
    assert kept in told[0]


async def test_two_tasks_that_changed_one_file_lose_nothing() -> None:
    main = [
        says("", write("w1", "/plan.md", "old")),
        says("", start("c1", "left"), start("c2", "right")),
        lambda request: check(request, "c1", "c2"),
        says("Done."),
    ]

    def dig(request: Any) -> Any:
        return says("", write("d", "/plan.md", request.messages[0].text))

    async with BackgroundSubAgents(MemoryCheckpointer()) as background:
        agent = family(background, {"main": main, "digger": [dig, says("Dug.")]})
        with anyio.fail_after(60):
            result = await agent.ainvoke("go")
    files = contents(result.state["files"])
    assert sorted(files.values()) == ["left", "right"]
    assert files["/plan.md"] == "left"


async def test_a_task_that_goes_on_brings_only_what_it_changed_since(tmp_path: Path) -> None:
    main = [
        says("", start("c1")),
        lambda request: check(request, "c1"),
        says("", write("w1", "/a.md", "edited by main")),
        lambda request: says(
            "",
            call("say", "update_task", task_id=task_in(request.messages, "c1"), message="go on"),
        ),
        lambda request: says(
            "",
            call(
                "again",
                "check_tasks",
                task_ids=[task_in(request.messages, "c1")],
                wait_seconds=30,
            ),
        ),
        says("Done."),
    ]
    digger = [
        says("", write("d1", "/a.md", "first")),
        says("Dug."),
        says("", write("d2", "/b.md", "second")),
        says("Dug more."),
    ]
    async with BackgroundSubAgents(MemoryCheckpointer()) as background:
        agent = family(background, {"main": main, "digger": digger})
        with anyio.fail_after(60):
            result = await agent.ainvoke("go")
    assert contents(result.state["files"]) == {"/a.md": "edited by main", "/b.md": "second"}


async def test_files_on_disk_are_shared_at_once(tmp_path: Path) -> None:
    main = [says("", start("c1")), lambda request: check(request, "c1"), says("Done.")]
    digger = [says("", write("d1", "/a.md", "dug")), says("Dug.")]
    async with BackgroundSubAgents(MemoryCheckpointer()) as background:
        turns = {"main": main, "digger": digger}
        agent = family(background, turns, backend=DirectoryBackend(tmp_path))
        with anyio.fail_after(60):
            result = await agent.ainvoke("go")
    assert (tmp_path / "a.md").read_text() == "dug"
    assert news(result) == []


FILES = st.dictionaries(
    st.sampled_from(["/a", "/a/b", "/b", "/conflicts", "/conflicts/t/a"]),
    st.builds(FileData, st.sampled_from(["1", "2", "3"])),
)


def digests(files: Mapping[str, FileData]) -> dict[str, str]:
    return {path: digest(file) for path, file in files.items()}


@given(base=FILES, child=FILES, own=FILES)
def test_no_version_is_ever_lost(
    base: dict[str, FileData], child: dict[str, FileData], own: dict[str, FileData]
) -> None:
    merged = merge_changes(digests(base), child, own, "/conflicts/t")
    after = {**own, **merged.writes}
    for path, file in own.items():
        if base.get(path) != file:  # changed here: it stays
            assert after[path] == file
    for path, file in child.items():
        if base.get(path) != file:
            assert file in (after.get(path), after.get(merged.kept.get(path) or ""))
    if not any(path.startswith("/conflicts") for path in (*base, *child)):
        present = {path: file for path, file in after.items() if file is not None}
        assert merge_changes(digests(base), child, present, "/conflicts/t").writes == {}


async def test_a_pruned_task_brings_what_it_changed_and_nothing_else() -> None:
    journal = MemoryCheckpointer()

    def again(request: Any) -> Any:
        found = task_in(request.messages, "c1")
        return says("", call("k2", "check_tasks", task_ids=[found], wait_seconds=30))

    main = [
        says("", *(write(f"w{name}", f"/{name}.md", "old") for name in ("a", "b", "c"))),
        says("", start("c1")),
        says("", write("w5", "/a.md", "mine"), call("w6", "remove", path="/b.md")),
        says("Begun."),
        lambda request: check(request, "c1"),
        says("", write("w7", "/d.md", "mine")),
        says("Collected."),
        again,
        says("Again."),
    ]
    digger = [
        says("", write("d1", "/c.md", "theirs"), write("d2", "/d.md", "theirs")),
        says("Dug."),
        says("", write("d3", "/e.md", "theirs")),
        says("Dug more."),
    ]
    async with BackgroundSubAgents(journal) as background:
        agent = family(background, {"main": main, "digger": digger}, [remove])
        with anyio.fail_after(60):
            first = await agent.ainvoke("go", thread_id="t")
            done = await view(background, first, "c1")
            await journal.prune(keep_latest=1)
            second = await agent.ainvoke("collect", thread_id="t")
            await background.send(done.run.thread_id, "more", "k")
            await view(background, first, "c1")
            await journal.prune(keep_latest=1)
            third = await agent.ainvoke("again", thread_id="t")
    mine = {"/a.md": "mine", "/c.md": "theirs", "/d.md": "mine"}
    assert contents(second.state["files"]) == mine
    assert contents(third.state["files"]) == {**mine, "/e.md": "theirs"}


def test_where_nothing_tells_what_a_task_changed_nothing_is_lost_and_nothing_comes_back() -> None:
    own = {"/both": FileData("mine"), "/same": FileData("1"), "/own": FileData("mine")}
    child = {"/both": FileData("theirs"), "/same": FileData("1"), "/other": FileData("theirs")}
    merged = merge_changes(None, child, own, "/conflicts/t")
    theirs = FileData("theirs")
    assert merged.writes == {"/conflicts/t/both": theirs, "/conflicts/t/other": theirs}
    told = merged.describe("task-1")
    assert "not known any more which files task-1 has changed" in told
    assert told.endswith("below /conflicts/t: /both, /other.")


def work_of_a_merge(count: int) -> int:
    """Return how many calls a merge of so many new, changed, clashing and deleted files makes."""
    base = {f"/src/{number}/old.md": FileData("1") for number in range(count)}
    child = {path: FileData("2") for path in base} | {
        f"/src/{number}/new.md": FileData("2") for number in range(count)
    }
    own = {f"/src/{number}/old.md": FileData("3" if number % 2 else "1") for number in range(count)}
    own |= {f"/mine/{number}.md": FileData("1") for number in range(count)}
    calls = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    known = digests(base)
    sys.setprofile(counted)
    try:
        merged = merge_changes(known, child, own, "/conflicts/t")
    finally:
        sys.setprofile(None)
    assert len(merged.taken) == count + count // 2
    assert len(merged.kept) == count // 2
    return calls


def test_the_work_of_a_merge_grows_with_the_number_of_files_and_not_with_its_square() -> None:
    assert work_of_a_merge(2_000) < 6 * work_of_a_merge(500)
