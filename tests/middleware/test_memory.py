"""Memory in an agent: the pinned section, and files that change in the middle of a thread."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.context.summarization import SummaryChunk
from deep_agent_mcp.harness.middleware.memory import MemoryMiddleware
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.middleware.hooks import Thread
from tests.skills.folders import remove, save

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "AGENTS.md"
    path.write_text("Use tabs. <!-- hidden -->")
    return path


async def begun(*paths: Path) -> Thread:
    thread = Thread(MemoryMiddleware(MemoryFiles(paths)))
    await thread.start()
    return thread


async def test_files_are_in_the_prompt_with_their_paths(path: Path, tmp_path: Path):
    thread = await begun(path, tmp_path / "missing.md")
    section = await thread.section()
    assert section is not None
    assert section.endswith(f'<memory_file path="{path}">\nUse tabs.\n</memory_file>')
    assert await thread.notice() is None


async def test_a_change_is_told_once_and_the_prompt_stays(path: Path):
    thread = await begun(path)
    before = await thread.section()
    save(path, "Use spaces.")
    notice = await thread.notice()
    assert notice is not None
    assert notice.startswith("memory: [Notice from the system")
    assert f'<memory_file path="{path}">\nUse spaces.\n</memory_file>' in notice
    assert await thread.notice() is None
    assert await thread.section() == before


async def test_a_change_between_two_runs_is_told_and_the_prompt_stays(path: Path):
    model = Turns(says("one"), says("two"))
    agent = create_agent(model, middleware=[MemoryMiddleware(MemoryFiles([path]))])
    await agent.ainvoke("go", thread_id="t")
    save(path, "Use spaces.")
    await agent.ainvoke("more", thread_id="t")
    first, second = model.requests
    assert [one.text for one in first.system] == [one.text for one in second.system]
    notice = second.messages[-1].text
    assert "Use spaces." in notice
    assert "It replaces what you read of them before" in notice


async def test_only_the_file_that_changed_is_told(path: Path, tmp_path: Path):
    other = tmp_path / "other.md"
    save(other, "Other.")
    thread = await begun(path, other)
    save(other, "New.")
    notice = await thread.notice() or ""
    assert "New." in notice
    assert "tabs" not in notice


async def test_a_file_that_appears_or_vanishes_is_told(path: Path, tmp_path: Path):
    late = tmp_path / "late.md"
    thread = await begun(path, late)
    save(late, "Late.")
    assert "Late." in (await thread.notice() or "")
    remove(path)
    assert f"{path} is gone" in (await thread.notice() or "")
    assert await thread.notice() is None


async def test_a_file_that_breaks_is_told_and_never_stops_the_run(path: Path):
    thread = await begun(path)
    save(path, b"\xff")
    notice = await thread.notice() or ""
    assert f"{path}:1: not UTF-8" in notice
    assert "last good text stays in use" in notice
    assert "<memory_file" not in notice
    save(path, "Use tabs.")
    assert f"The problem with {path} is fixed." in (await thread.notice() or "")


async def test_without_any_text_there_is_no_section_and_a_later_file_is_told(tmp_path: Path):
    path = tmp_path / "AGENTS.md"
    thread = await begun(path)
    assert await thread.section() is None
    save(path, "Now.")
    assert "Now." in (await thread.notice() or "")
    assert await thread.section() is None


async def test_a_new_thread_begins_with_what_the_files_say_then(path: Path):
    files = MemoryFiles([path])
    save(path, "Use spaces.")
    thread = Thread(MemoryMiddleware(files))
    await thread.start()
    assert "Use spaces." in (await thread.section() or "")
    assert await thread.notice() is None


async def test_files_are_not_touched_on_the_event_loop(path: Path):
    where: list[int] = []

    class Watched(MemoryFiles):
        def reload(self) -> bool:
            where.append(threading.get_ident())
            return super().reload()

    files = Watched([path])
    where.clear()
    thread = Thread(MemoryMiddleware(files))
    await thread.start()
    await thread.notice()
    assert len(where) == 2
    assert threading.get_ident() not in where


async def test_a_real_agent_sees_its_own_edit_at_its_next_call(path: Path):
    @tool
    def edit(text: str) -> str:
        """Write the memory file."""
        path.write_text(text)
        return "written"

    model = Turns(says("", call("c1", "edit", text="Use spaces.")), says("done"))
    agent = create_agent(model, [edit], middleware=[MemoryMiddleware(MemoryFiles([path]))])
    await agent.ainvoke("go", thread_id="thr_1")
    last: Any = model.requests[1].messages[-1]
    assert isinstance(last, HumanMessage)
    assert last.source == "memory"
    assert "Use spaces." in last.text
    assert model.requests[0].system == model.requests[1].system


async def test_the_section_can_be_worded_otherwise_or_left_out(path: Path):
    save(path, "Use {braces}.")
    files = MemoryFiles([path])
    thread = Thread(MemoryMiddleware(files, system_prompt="Know: {agent_memory} That is all."))
    await thread.start()
    assert await thread.section() == (
        f'Know: <memory_file path="{path}">\nUse {{braces}}.\n</memory_file> That is all.'
    )
    thread = Thread(MemoryMiddleware(files, system_prompt=None))
    await thread.start()
    assert await thread.section() is None
    save(path, "New.")
    assert "New." in (await thread.notice() or "")
    with pytest.raises(AgentBuildError, match=r"needs \{agent_memory\}"):
        MemoryMiddleware(files, system_prompt="Know.")


async def test_when_a_summary_took_the_notice_the_prompt_says_what_holds_now(path: Path):
    thread = await begun(path)
    before = await thread.section()
    save(path, "Use spaces.")
    assert await thread.notice()
    thread.state = {**thread.state, "messages": [*thread.state["messages"], HumanMessage("on")]}
    for upto, stale in ((None, True), (-1, True), (0, False)):
        chunks = [] if upto is None else [SummaryChunk("m", "s", 1, upto_index=upto)]
        thread.state = {**thread.state, "summaries": chunks}
        assert await thread.notice() is None
        section = await thread.section() or ""
        assert (section == before) is stale and ("Use spaces." in section) is not stale
    update = await thread.hook("before_model")
    assert update is None, "once is enough"


def test_comments_that_never_end_are_text_and_take_time_in_proportion(path: Path):
    path.write_text("<!-- a -->Keep.<!--<!---->" + "<!--" * 50_000)
    begun = time.thread_time()
    (file,) = MemoryFiles([path]).snapshot.files
    assert time.thread_time() - begun < 1
    assert file.text.startswith("Keep.<!--<!--")
