"""What a background task does to its files, and what its caller finds of that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.backends.directory import DirectoryBackend
from harness.backends.state import FileData
from harness.checkpoint.memory import MemoryCheckpointer
from harness.subagents.background import BackgroundSubAgents
from harness.subagents.background_files import merge_changes
from harness.tools import ToolResult, tool
from tests.loop.models import call, says
from tests.subagents.background import check, family, news, start, task_in, view

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
        with anyio.fail_after(30):
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
    told = [one for one in news(after) if "Files of" in one]
    assert len(told) == 1
    assert (
        f"/both.md was changed here too, so it stays as it is; its version is in {aside}"
        in (told[0])
    )


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
        with anyio.fail_after(30):
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
        with anyio.fail_after(30):
            result = await agent.ainvoke("go")
    assert contents(result.state["files"]) == {"/a.md": "edited by main", "/b.md": "second"}


async def test_files_on_disk_are_shared_at_once(tmp_path: Path) -> None:
    main = [says("", start("c1")), lambda request: check(request, "c1"), says("Done.")]
    digger = [says("", write("d1", "/a.md", "dug")), says("Dug.")]
    async with BackgroundSubAgents(MemoryCheckpointer()) as background:
        turns = {"main": main, "digger": digger}
        agent = family(background, turns, backend=DirectoryBackend(tmp_path))
        with anyio.fail_after(30):
            result = await agent.ainvoke("go")
    assert (tmp_path / "a.md").read_text() == "dug"
    assert news(result) == []


FILES = st.dictionaries(
    st.sampled_from(["/a", "/a/b", "/b", "/conflicts", "/conflicts/t/a"]),
    st.builds(FileData, st.sampled_from(["1", "2", "3"])),
)


@given(base=FILES, child=FILES, own=FILES)
def test_no_version_is_ever_lost(
    base: dict[str, FileData], child: dict[str, FileData], own: dict[str, FileData]
) -> None:
    merged = merge_changes(base, child, own, "/conflicts/t")
    after = {**own, **merged.writes}
    for path, file in own.items():
        if base.get(path) != file:  # changed here: it stays
            assert after[path] == file
    for path, file in child.items():
        if base.get(path) != file:
            assert file in (after.get(path), after.get(merged.kept.get(path) or ""))
    if not any(path.startswith("/conflicts") for path in (*base, *child)):
        present = {path: file for path, file in after.items() if file is not None}
        assert merge_changes(base, child, present, "/conflicts/t").writes == {}
