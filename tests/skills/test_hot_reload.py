"""Hot reload: real files, saved the ways editors save, reach registries and listeners."""

import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import anyio
import pytest
from anyio import from_thread

from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.server.reload import hot_reload
from deep_agent_mcp.server.reload.hot_reload import Kind, Reloadable, watch
from tests.skills.folders import save_by_rename, skill_text, write_skill

pytestmark = pytest.mark.anyio

AGENT = "---\nname: critic\ndescription: Finds faults.\n---\n\nYou find faults.\n"


class Listener:
    """Collects notices, and waits until a condition holds after one of them."""

    def __init__(self) -> None:
        self.notices: list[tuple[Kind, frozenset[str]]] = []
        self._news = anyio.Event()

    async def __call__(self, kind: Kind, changed: frozenset[str]) -> None:
        self.notices.append((kind, changed))
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not condition():
                await self._news.wait()


@asynccontextmanager
async def watching(
    registries: dict[Kind, Reloadable], listener: Listener | None = None
) -> AsyncIterator[Listener]:
    listener = listener or Listener()
    async with anyio.create_task_group() as group:

        async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await watch(registries, listener, task_status=task_status)

        with anyio.fail_after(60):
            await group.start(run)
        yield listener
        group.cancel_scope.cancel()


def swap(directory: Path, replacement: Path) -> None:
    directory.rename(directory.with_name("old"))
    replacement.rename(directory)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "skills"
    path.mkdir()
    return path


async def test_a_new_skill_and_an_edit_are_noticed(source: Path):
    registry = SkillRegistry([source])
    async with watching({"skills": registry}) as listener:
        path = write_skill(source, "a", body="one")
        await listener.until(lambda: "a" in registry.skills)
        path.write_text(skill_text("a", body="two"))
        await listener.until(lambda: registry.get("a").body == "two")
        save_by_rename(path, skill_text("a", body="three"))
        await listener.until(lambda: registry.get("a").body == "three")
        shutil.rmtree(path.parent)
        await listener.until(lambda: not registry.skills)
    assert all(kind == "skills" for kind, _ in listener.notices)
    assert frozenset().union(*(changed for _, changed in listener.notices)) >= {"a"}


async def test_a_saved_file_reaches_the_listener_within_150_ms(source: Path):
    path = write_skill(source, "a", body="0")
    registry = SkillRegistry([source])
    took = 1.0
    async with watching({"skills": registry}) as listener:
        for number in range(100):
            started = time.perf_counter()
            save_by_rename(path, skill_text("a", body=f"new {number}"))
            await listener.until(lambda body=f"new {number}": registry.get("a").body == body)
            took = time.perf_counter() - started
            if took < 0.150:  # one shows how long the code waits; others, how busy the machine is
                break
    assert took < 0.150


async def test_each_kind_is_told_apart(tmp_path: Path, source: Path):
    agents, memory = tmp_path / "agents", tmp_path / "AGENTS.md"
    agents.mkdir()
    registries: dict[Kind, Reloadable] = {
        "skills": SkillRegistry([source]),
        "agents": SubAgentRegistry(agents),
        "memory": MemoryFiles([memory]),
    }
    async with watching(registries) as listener:
        (agents / "critic.md").write_text(AGENT)
        await listener.until(lambda: ("agents", frozenset({"critic"})) in listener.notices)
        save_by_rename(memory, "Remember.")
        await listener.until(lambda: ("memory", frozenset({str(memory)})) in listener.notices)
        save_by_rename(memory, "Remember more.")
        await listener.until(lambda: sum(kind == "memory" for kind, _ in listener.notices) == 2)
    assert {kind for kind, _ in listener.notices} == {"agents", "memory"}


async def test_a_broken_file_is_told_by_its_path_and_again_when_mended(source: Path):
    path = write_skill(source, "a", body="good")
    registry = SkillRegistry([source])
    async with watching({"skills": registry}) as listener:
        save_by_rename(path, "broken")
        await listener.until(lambda: bool(registry.errors))
        assert listener.notices == [("skills", frozenset({str(path)}))]
        assert registry.get("a").body == "good"
        save_by_rename(path, skill_text("a", body="good"))
        await listener.until(lambda: not registry.errors)
    assert listener.notices[-1] == ("skills", frozenset({str(path)}))


async def test_a_burst_of_saves_is_reported_in_few_notices(source: Path):
    registry = SkillRegistry([source])
    async with watching({"skills": registry}) as listener:
        for number in range(40):
            write_skill(source, f"s-{number}")
        await listener.until(lambda: len(registry.skills) == 40)
    assert len(listener.notices) <= 20


async def test_a_directory_that_does_not_exist_yet_is_watched_once_it_does(tmp_path: Path):
    source = tmp_path / "project" / ".agents" / "skills"
    memory = tmp_path / "later" / "AGENTS.md"
    registry, files = SkillRegistry([source]), MemoryFiles([memory])
    async with watching({"skills": registry, "memory": files}) as listener:
        (tmp_path / "project").mkdir()
        path = write_skill(source, "a", body="one")
        await listener.until(lambda: "a" in registry.skills)
        save_by_rename(path, skill_text("a", body="two"))
        await listener.until(lambda: registry.get("a").body == "two")
        memory.parent.mkdir()
        memory.write_text("A")
        await listener.until(lambda: bool(files.snapshot.files))


async def test_a_directory_that_is_deleted_and_made_again_goes_on_being_watched(source: Path):
    write_skill(source, "a")
    registry = SkillRegistry([source])
    async with watching({"skills": registry}) as listener:
        for name in ("b", "c", "d"):
            shutil.rmtree(source)
            await listener.until(lambda: not registry.skills)
            path = write_skill(source, name, body="one")
            await listener.until(lambda name=name: name in registry.skills)
            path.write_text(skill_text(name, body="two"))
            await listener.until(lambda name=name: registry.get(name).body == "two")


async def test_a_directory_that_is_replaced_in_one_go_is_watched_on(tmp_path: Path, source: Path):
    write_skill(source, "a")
    registry = SkillRegistry([source])
    async with watching({"skills": registry}) as listener:
        shutil.rmtree(source)
        path = write_skill(source, "b", body="one")
        await listener.until(lambda: list(registry.skills) == ["b"])
        path.write_text(skill_text("b", body="two"))
        await listener.until(lambda: registry.get("b").body == "two")
        path = write_skill(tmp_path / "fresh", "c", body="one")
        swap(source, tmp_path / "fresh")
        await listener.until(lambda: list(registry.skills) == ["c"])
        (source / "c" / "SKILL.md").write_text(skill_text("c", body="two"))
        await listener.until(lambda: registry.get("c").body == "two")


async def test_the_parent_of_a_memory_file_may_be_deleted_and_made_again(tmp_path: Path):
    memory = tmp_path / "notes" / "AGENTS.md"
    memory.parent.mkdir()
    memory.write_text("one")
    files = MemoryFiles([memory])
    async with watching({"memory": files}) as listener:
        shutil.rmtree(memory.parent)
        memory.parent.mkdir()
        memory.write_text("two")
        await listener.until(lambda: [file.text for file in files.snapshot.files] == ["two"])
        memory.write_text("three")
        await listener.until(lambda: [file.text for file in files.snapshot.files] == ["three"])


async def test_a_source_behind_a_link_is_watched_and_so_is_the_link(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
):
    # Events tell it, not the regular look at all paths.
    monkeypatch.setattr(hot_reload, "_RECHECK_SECONDS", 300.0)
    path = write_skill(source, "a", body="one")
    write_skill(tmp_path / "other", "b")
    link = tmp_path / "link"
    link.symlink_to(source)
    registry = SkillRegistry([link])
    async with watching({"skills": registry}) as listener:
        path.write_text(skill_text("a", body="two"))
        await listener.until(lambda: registry.get("a").body == "two")
        fresh = tmp_path / "fresh"
        fresh.symlink_to(tmp_path / "other")
        await anyio.sleep(0.2)  # the watch waits again, so only an event of the link can tell it
        os.replace(fresh, link)
        await listener.until(lambda: list(registry.skills) == ["b"])


async def test_what_changed_before_the_watch_began_is_reported_at_its_start(source: Path):
    registry = SkillRegistry([source])
    write_skill(source, "a")
    async with watching({"skills": registry}) as listener:
        await listener.until(lambda: bool(listener.notices))
        assert listener.notices == [("skills", frozenset({"a"}))]


async def test_what_another_reader_reloaded_first_is_still_reported(source: Path):
    registry = SkillRegistry([source])
    async with watching({"skills": registry}) as listener:
        write_skill(source, "a")
        registry.reload()
        await listener.until(lambda: ("skills", frozenset({"a"})) in listener.notices)


async def test_a_listener_that_fails_does_not_end_the_watch(
    source: Path, caplog: pytest.LogCaptureFixture
):
    class Failing(Listener):
        async def __call__(self, kind: Kind, changed: frozenset[str]) -> None:
            await super().__call__(kind, changed)
            if len(self.notices) == 1:
                raise RuntimeError("listener broke")

    registry = SkillRegistry([source])
    with caplog.at_level(logging.ERROR, "deep_agent_mcp.server.reload.hot_reload"):
        async with watching({"skills": registry}, Failing()) as listener:
            write_skill(source, "a")
            await listener.until(lambda: "a" in registry.skills)
            write_skill(source, "b")
            await listener.until(lambda: "b" in registry.skills)
    assert "the change of skills was not announced" in caplog.text
    assert "listener broke" in caplog.text


async def test_hidden_files_and_caches_do_not_cause_reloads(source: Path):
    class Counting(SkillRegistry):
        scans = 0

        def reload(self) -> bool:
            self.scans += 1
            return super().reload()

    write_skill(source, "a")
    registry = Counting([source])
    async with watching({"skills": registry}) as listener:
        before = registry.scans
        for number in range(5):
            (source / "a" / f".{number}.swp").touch()
            (source.parent / f"unrelated-{number}.txt").touch()
            await anyio.sleep(0.06)  # longer than changes are gathered, so each counts by itself
        write_skill(source, "b")
        await listener.until(lambda: "b" in registry.skills)
    assert registry.scans - before <= 3


async def test_all_files_are_looked_at_again_although_something_changes_all_the_time(
    source: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hot_reload, "_FULL_SECONDS", 0.2)
    looked = anyio.Event()

    class Looking(SkillRegistry):
        def refresh(self) -> None:
            super().refresh()
            from_thread.run_sync(looked.set)

    async def busy() -> None:
        for number in count():
            (source / f"log-{number}.txt").touch()
            await anyio.sleep(0.05)

    write_skill(source, "a")
    async with watching({"skills": Looking([source])}), anyio.create_task_group() as group:
        group.start_soon(busy)
        with anyio.fail_after(60):
            await looked.wait()
        group.cancel_scope.cancel()


async def test_cancelling_ends_the_watch_at_once(source: Path):
    started = time.perf_counter()
    async with watching({"skills": SkillRegistry([source])}):
        pass
    assert time.perf_counter() - started < 60
